"""Helpers of the suite: descriptors, threads, children, and clocks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import resource
import select
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LINUX = sys.platform == "linux"
HIGH = 1500  # descriptors that are "high" get this number or more; select() ends at 1023
SLACK = float(os.environ.get("FDWAIT_TEST_SLACK", "2"))  # what upper bounds of time are stretched by
# .ci/emfile preloads a library that lets fdwait open nothing, and everybody else what they like.
STARVED = "FAULT_NO_DESCRIPTOR" in os.environ
BACKEND = "poll" if STARVED else os.environ.get("FDWAIT_BACKEND")  # the only one to be had, if so


# ---- descriptors ----


def descriptors() -> dict[int, str]:
    """The descriptor table: number -> what is open there."""
    table = {}
    if LINUX:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own descriptor
                table[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    else:
        for fd in range(4096):
            with contextlib.suppress(OSError):
                seen = os.fstat(fd)
                table[fd] = f"{stat.S_IFMT(seen.st_mode):o} {seen.st_dev}:{seen.st_ino}"
    return table


class Owner:
    """Opens descriptors and closes, at the end, those that are still open."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def __call__(self, fd: int) -> int:
        self._open.add(fd)
        return fd

    def pipe(self) -> tuple[int, int]:
        r, w = os.pipe()
        return self(r), self(w)

    def dup(self, fd: int) -> int:
        return self(os.dup(fd))

    def up(self, fd: int) -> int:
        """Move an open file to a high number."""
        high = self(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH))
        self.close(fd)
        return high

    def close(self, fd: int) -> None:
        self._open.remove(fd)
        os.close(fd)

    def close_all(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()


class HasFileno:
    """Something with a fileno(), and nothing else."""

    def __init__(self, fd: Any) -> None:
        self.fd = fd

    def fileno(self) -> Any:
        return self.fd


def raise_limit(wanted: int) -> int:
    """Raise the soft limit of open descriptors if it is lower; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Nothing can be opened in here: every attempt is EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with contextlib.suppress(OSError):
            os.close(os.open(os.devnull, os.O_RDONLY))
            raise AssertionError("a descriptor could still be opened")
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def nonblocking(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK)


def fill(fd: int) -> int:
    """Write until nothing more goes in; how much went."""
    total = 0
    os.set_blocking(fd, False)
    for block in (65536, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                total += os.write(fd, b"f" * block)
    os.set_blocking(fd, True)
    return total


def until_readable(fd: int) -> int:
    """Wait with the system's own select() until what was set off has arrived."""
    assert select.select([fd], [], [], 10)[0], "it did not become readable"
    return fd


def until_full(fd: int) -> None:
    """Wait until whoever writes there has left no room."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    deadline = time.monotonic() + 10
    while poll.poll(0):
        assert time.monotonic() < deadline, "it was not filled"
        time.sleep(0.001)


# ---- data ----

PATTERN = random.Random(1).randbytes(65521)  # the length is prime: a lost block cannot hide


def stretch(start: int, size: int) -> bytes:
    """`size` bytes of the endless repetition of PATTERN, from offset `start`."""
    start %= len(PATTERN)
    return (PATTERN * ((start + size) // len(PATTERN) + 1))[start : start + size]


def prints_pattern(size: int | None = None) -> list[str]:
    """A command that prints that repetition: `size` bytes, or without end."""
    return python(
        """
        import os, random, sys
        pattern = random.Random(1).randbytes(65521)
        left = int(sys.argv[1])
        while left:
            left -= os.write(1, pattern[:left] if left > 0 else pattern)
        """,
        str(-1 if size is None else size),
    )


def prints_at_once(size: int) -> list[str]:
    """A command that prints the first `size` bytes of it in one write."""
    code = """
        import os, random, sys
        pattern, size = random.Random(1).randbytes(65521), int(sys.argv[1])
        assert os.write(1, (pattern * (size // 65521 + 1))[:size]) == size
        """
    return python(code, str(size))


# ---- time ----


@contextlib.contextmanager
def lasts(at_least: float, tolerance: float) -> Iterator[None]:
    """The body takes `at_least` so many seconds, and no more than `tolerance` beyond."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert at_least <= took <= at_least + tolerance * SLACK, f"it took {took:.4f} s"


@contextlib.contextmanager
def cpu_below(seconds: float) -> Iterator[None]:
    """The body, with all threads, costs less than so many seconds of processor time."""
    start = time.process_time()
    yield
    used = time.process_time() - start
    assert used <= seconds * SLACK, f"{used:.4f} s of processor time"


# ---- threads ----


class Task(threading.Thread):
    """A call in a thread of its own, `delay` seconds from now; `result()` has what came of it."""

    def __init__(self, call: Callable[..., Any], *args: Any, delay: float = 0, **kwargs: Any):
        super().__init__(daemon=True)
        self._call, self._args, self._delay, self._kwargs = call, args, delay, kwargs
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            time.sleep(self._delay)
            self._value = self._call(*self._args, **self._kwargs)
        except BaseException as error:
            self._error = error

    def result(self, within: float = 30) -> Any:
        self.join(within)
        assert not self.is_alive(), f"still running after {within} s"
        if self._error is not None:
            raise self._error
        return self._value


def let_it_sleep() -> None:
    """Time for another thread to reach its wait. Where it does not, the outcome must be the same."""
    time.sleep(0.1)


# ---- children ----


def python(code: str, *args: str) -> list[str]:
    """The command line of a small program that needs the standard library only."""
    return [sys.executable, "-S", "-E", "-c", textwrap.dedent(code), *args]


def program(code: str, *args: str) -> list[str]:
    """The command line of a program that may import the package and this module."""
    head = f"import sys\nsys.path.insert(0, {os.fspath(Path(__file__).parent)!r})\n"
    return [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(code), *args]


def run_program(code: str, *args: str, **options: Any) -> str:
    """Run such a program to its end; what it printed. An assertion that fails in it fails here."""
    done = subprocess.run(program(code, *args), check=False, capture_output=True, text=True, timeout=50, **options)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def watch_exit(pid: int) -> Iterator[Callable[[], None]]:
    """Hands out a call that waits for the exit of a process, ours or not, and does not reap it."""
    if hasattr(os, "pidfd_open"):
        fd = os.pidfd_open(pid)
        try:
            yield lambda: until_readable(fd) and None
        finally:
            os.close(fd)
    else:
        with contextlib.closing(select.kqueue()) as queue:
            exit_of = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            queue.control([exit_of], 0)
            yield lambda: queue.control(None, 1, 10) and None
