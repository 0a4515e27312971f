"""Ways to run a command and capture what it prints: run(), and the standard library's."""

import functools
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import fdwait
from bench.drains import MIB
from bench.programs import program

RUNNERS: dict[str, Callable[..., "subprocess.CompletedProcess[bytes]"]] = {
    "run()": fdwait.run,
    "subprocess.run()": functools.partial(subprocess.run, capture_output=True),
}


@dataclass(frozen=True)
class Work:
    """A command that prints a number of bytes, and whether it is fed them."""

    title: str
    command: Callable[[int], list[str]]
    is_fed: bool = False

    def prepare(self, runner: str, size: int) -> Callable[[], None]:
        """The call that is measured."""
        run, command = RUNNERS[runner], self.command(size)
        data = b"x" * size if self.is_fed else None

        def call() -> None:
            done = run(command, input=data)
            if done.returncode or len(done.stdout) != size:
                raise RuntimeError(f"{runner} got {len(done.stdout)} of {size} bytes, status {done.returncode}")

        return call

    def seconds(self, runner: str, mib: int) -> float:
        """How long it takes, with the start of the command."""
        call = self.prepare(runner, mib * MIB)
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


OUTPUT = Work("of output", lambda size: [program("writer"), str(size)])
THROUGH_CAT = Work("through cat", lambda _: ["cat"], is_fed=True)


def seconds_of_true(runner: str, number: int) -> float:
    """How long it takes to run `true` so many times."""
    run = RUNNERS[runner]
    start = time.perf_counter()
    for _ in range(number):
        run(["true"])
    return time.perf_counter() - start
