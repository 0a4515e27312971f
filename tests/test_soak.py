"""Every byte in 1000 of 1000 runs: above 1023, already gone, stopped in between, no descriptor left.

25 runs of each by default, 1000 with --soak.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import (
    LINUX,
    Owner,
    no_free_descriptor,
    prints_at_once,
    program,
    stretch,
    watch_exit,
)

from fdwait import End, drain

Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]
Count = Callable[[Callable[[int], bool]], None]

DATA = stretch(0, 5098)


@pytest.fixture
def count(
    request: pytest.FixtureRequest,
    rounds: Callable[[int, int], int],
    capsys: pytest.CaptureFixture[str],
) -> Count:
    """count(run): calls run(i) as often as due, prints how often it was right, and wants all."""

    def count(run: Callable[[int], bool]) -> None:
        times = rounds(25, 1000)
        right = sum(run(i) for i in range(times))
        with capsys.disabled():
            print(f"\n{request.node.name}: every byte in {right} of {times} runs ", end="")
        assert right == times

    return count


@pytest.fixture
def cat(tmp_path: Path) -> str:
    """A command that prints DATA and exits with 7."""
    (tmp_path / "data").write_bytes(DATA)
    return f"cat '{tmp_path}/data'; exit 7"


@contextmanager
def running(command: str, own: Owner, place: Callable[[int], int]) -> Iterator[tuple]:
    r, w = own.pipe()
    r = place(r)
    with subprocess.Popen(["sh", "-c", command], stdout=w) as process:
        own.close(w)
        yield process, r
    own.close(r)


def test_above_1023(count: Count, cat: str, own: Owner) -> None:
    def run(_: int) -> bool:
        with running(cat, own, own.up) as (process, out):
            result = drain(out, process=process)
        return (result.data, result.end, process.returncode) == (DATA, End.EOF, 7)

    count(run)


def test_gone_before_the_first_read(count: Count, cat: str, own: Owner, place: Callable[[int], int]) -> None:
    def run(_: int) -> bool:
        with running(cat, own, place) as (process, out):
            process.wait()
            result = drain(out, process=process)
        return (result.data, result.end, process.returncode) == (DATA, End.EOF, 7)

    count(run)


def test_no_descriptor_left(count: Count, cat: str, own: Owner, place: Callable[[int], int]) -> None:
    def run(_: int) -> bool:
        with running(cat, own, place) as (process, out), no_free_descriptor():
            result = drain(out, process=process)
        return (result.data, result.end, process.returncode) == (DATA, End.EOF, 7)

    count(run)


DRAINS = """
    import fcntl, os, subprocess, sys
    import fdwait
    for line in sys.stdin:
        command = line.strip()
        r, w = os.pipe()
        out = fcntl.fcntl(r, fcntl.F_DUPFD_CLOEXEC, int(sys.argv[1]))
        with subprocess.Popen(["sh", "-c", command], stdout=w) as process:
            os.close(w)
            print(process.pid, flush=True)
            result = fdwait.drain(out, process=process)
        os.close(out)
        os.close(r)
        print(result.data.hex(), result.end.name, process.returncode, flush=True)
    """


def asleep(pid: int) -> bool:
    """Whether the process sleeps; where that cannot be seen, after a moment."""
    if not LINUX:
        time.sleep(0.01)
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_b065_stopped_between_wait_and_read(
    count: Count, own: Owner, place: Callable[[int], int], tmp_path: Path
) -> None:
    """While the draining process is stopped, its child writes and exits.

    It is stopped in its wait, before anything was written; or right after, anywhere between that
    wait and the read.
    """
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    floor = place(own.pipe()[0])
    moments = random.Random(1)

    with subprocess.Popen(
        program(DRAINS, str(floor)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as drainer:
        assert drainer.stdin is not None
        assert drainer.stdout is not None

        def stop() -> None:
            drainer.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(drainer.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)

        def run(i: int) -> bool:
            print(f"read go < '{fifo}'; printf hi; exit 7", file=drainer.stdin, flush=True)
            with watch_exit(int(drainer.stdout.readline())) as child_exited:
                with open(fifo, "w") as go:  # opens when the child has come to it
                    while not asleep(drainer.pid):
                        pass
                    if i % 2 == 0:
                        stop()
                    print(file=go)
                if i % 2 == 1:
                    time.sleep(moments.random() * 0.003)
                    stop()
                child_exited()
            drainer.send_signal(signal.SIGCONT)
            return drainer.stdout.readline().split() == [b"hi".hex(), "EOF", "7"]

        try:
            count(run)
        finally:
            drainer.send_signal(signal.SIGCONT)
            drainer.stdin.close()


def test_large_outputs(count: Count, own: Owner, place: Callable[[int], int]) -> None:
    """Of many sizes, so that the last read falls anywhere."""
    sizes = random.Random(2)

    def run(_: int) -> bool:
        size = sizes.randrange(3_000_000)
        r, w = own.pipe()
        r = place(r)
        with subprocess.Popen(prints_at_once(size), stdout=w) as process:
            own.close(w)
            result = drain(r, process=process)
        own.close(r)
        return (result.data, result.end) == (stretch(0, size), End.EOF)

    count(run)
