"""`python -m bench.instructions`: instructions of each hot call, counted by valgrind's callgrind.

Counts hardly change from run to run, so a change of a few per cent shows, as it does in no timing. The
instructions of a call are the difference between two numbers of passes, less those of an empty pass. What the
kernel does is not seen.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import _cffi_backend

import fdwait
from bench.calls import MODULES, Group, Names, idle_pipe, pipes, ready_pipe

FEW, MANY = 200, 1200


@contextmanager
def finished_pipes() -> Iterator[Names]:
    """`finished()` is a new pipe with 5 bytes in it and no writer."""

    def finished() -> int:
        r, w = os.pipe()
        os.write(w, b"hello")
        os.close(w)
        return r

    yield {"finished": finished} | MODULES


EMPTY = "pass"
GROUPS = (
    Group(
        "a ready descriptor",
        ready_pipe,
        {
            "FdWaiter.wait()": "waiter.wait()",
            "FdWaiter.wait(1.0)": "waiter.wait(1.0)",
            "wait_readable(fd)": "fdwait.wait_readable(r)",
            "select([r], [], [], 0)": "fdwait.select([r], [], [], 0)",
            "select.epoll.poll(1.0)": "epoll.poll(1.0)",
            "select.poll.poll(1000)": "poll.poll(1000)",
            "select.select([r], [], [], 0)": "select.select([r], [], [], 0)",
            "selectors select(1.0)": "selector.select(1.0)",
        },
    ),
    Group(
        "an idle descriptor",
        idle_pipe,
        {
            "FdWaiter.wait(0)": "waiter.wait(0)",
            "wait_readable(fd, 0)": "fdwait.wait_readable(r, 0)",
            "select([r], [], [], 0)": "fdwait.select([r], [], [], 0)",
            "select.epoll.poll(0)": "epoll.poll(0)",
            "select.select([r], [], [], 0)": "select.select([r], [], [], 0)",
        },
    ),
    Group(
        "100 descriptors, one ready",
        lambda: pipes(100),
        {
            "select(fds, [], [], 0)": "fdwait.select(fds, [], [], 0)",
            "select.select(fds, [], [], 0)": "select.select(fds, [], [], 0)",
        },
    ),
    Group(
        "a pipe with 5 bytes, to its end (and its making)",
        finished_pipes,
        {
            "drain": "r = finished(); fdwait.drain(r); os.close(r)",
            "os.read until empty": "r = finished(); os.read(r, 65536); os.read(r, 65536); os.close(r)",
        },
    ),
)


def run(group: Group, statement: str, passes: int) -> None:
    """What callgrind looks at: `passes` passes of the statement."""
    with group.prepare() as names:
        exec(f"def loop(passes):\n    for _ in passes:\n        {statement}", names)
        names["loop"](itertools.repeat(None, passes))


def interpreter(group: int, statement: str, passes: int, directory: str, *before: str) -> str:
    """Run that in an interpreter that does nothing else; returns what came on stderr."""
    places = [directory, str(Path(_cffi_backend.__file__).parent)]
    code = (
        f"import sys; sys.path += {places!r}\n"
        "from bench import instructions as i\n"
        f"i.run(i.GROUPS[{group}], {statement!r}, {passes})"
    )
    done = subprocess.run(
        [*before, sys.executable, "-S", "-s", "-c", code],
        # The same hash seed, no settings of the user, and compiled modules of our own.
        env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": directory},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{statement} failed:\n{done.stderr}")
    return done.stderr


def collected(group: int, statement: str, passes: int, directory: str) -> int:
    """Instructions of such a run, from start to end."""
    callgrind = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/callgrind.out")
    errors = interpreter(group, statement, passes, directory, *callgrind)
    found = re.search(r"Collected : (\d+)", errors)
    if not found:
        raise RuntimeError(f"callgrind told no count:\n{errors}")
    return int(found[1])


def instructions(group: int, statement: str, directory: str) -> float:
    few, many = (collected(group, statement, n, directory) for n in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        # A copy, compiled once: compiling a module that was edited meanwhile would count.
        for package in (Path(__file__).parent, Path(fdwait.__file__).parent):
            shutil.copytree(package, Path(directory) / package.name)
        interpreter(0, EMPTY, 1, directory)
        for number, group in enumerate(GROUPS):
            print(f"\n{group.title}")
            empty = instructions(number, EMPTY, directory)
            for name, statement in group.statements.items():
                count = instructions(number, statement, directory) - empty
                print(f"  {name:32}{count:10.0f}", flush=True)


if __name__ == "__main__":
    main()
