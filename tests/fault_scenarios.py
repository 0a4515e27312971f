"""Run by test_faults.py in a process of its own, under the preloaded shim: `fault_scenarios.py SCENARIO`.

Each scenario is run once untouched, to see which system calls the extension module makes in it, and then once
for each call, each place among the calls of its kind, and each errno that it can give: that call fails, once.
What must hold then is in the scenario; it prints one JSON line for each run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pty
import re
import socket
import subprocess
import sys
import tempfile
import threading
import tty
from collections.abc import Callable
from errno import (
    EAGAIN,
    EBADF,
    EBUSY,
    ECHILD,
    ECONNRESET,
    EINTR,
    EINVAL,
    EIO,
    EMFILE,
    ENFILE,
    ENODEV,
    ENOENT,
    ENOMEM,
    ENOPROTOOPT,
    ENOSPC,
    ENOSYS,
    ENOTTY,
    EOPNOTSUPP,
    EOVERFLOW,
    EPERM,
    ESPIPE,
    ETIMEDOUT,
)

import fdwait
from fdwait import READ, WRITE, End, FdWaiter, Stop, Window, drain

# What must go unnoticed: there is another way, or nothing that matters was lost.
TRANSPARENT = {
    "epoll_create1": [EMFILE, ENFILE, ENOMEM],
    "epoll_ctl_add": [ENOSPC, ENOMEM],
    "epoll_ctl_del": [ENOENT, EBADF],
    "epoll_wait": [EINTR],
    "poll": [EINTR, ENOMEM, EINVAL],
    "ppoll": [EINTR, ENOMEM, EINVAL],
    "pselect": [EINTR],
    "readv": [EINTR, EAGAIN],
    "preadv2": [EINTR, EAGAIN, EOPNOTSUPP, ENOSYS, EPERM, EINVAL],
    "recvmsg": [EINTR, EAGAIN],
    "fcntl_getpipesz": [EBADF, EINVAL],
    "fcntl_setpipesz": [EPERM, EBUSY, ENOMEM],
    "ioctl": [ENOTTY, EINVAL],
    "getsockopt": [ENOPROTOOPT, ENOMEM],
    "lseek": [ESPIPE, EINVAL],
    "pidfd_open": [EMFILE, ENFILE, ENOMEM, ENODEV, ENOSYS, EPERM, EINVAL],
    "waitid": [EINTR, ECHILD],
    "kill": [EPERM],
    "eventfd": [EMFILE, ENFILE, ENOMEM, ENODEV],
    "pipe2": [EMFILE, ENFILE],
    "munmap": [ENOMEM],
    "madvise": [EINVAL, ENOMEM, EAGAIN],
}

# What may be told, as an exception that says it.
TOLD = {
    "epoll_ctl_mod": [ENOENT, EBADF],
    "pselect": [ENOMEM],
    "readv": [EIO, ENOMEM],
    "preadv2": [EIO, ENOMEM],
    "recvmsg": [ECONNRESET, ETIMEDOUT, ENOMEM],
    "fcntl_getfd": [EBADF],
    "fcntl_dupfd": [EMFILE],
    "fstat": [EBADF, EIO, ENOMEM, EOVERFLOW],
    "mmap": [ENOMEM],
    "malloc": [ENOMEM],
    "calloc": [ENOMEM],
    "realloc": [ENOMEM],
}

PAYLOAD = b"".join(b"%07d\n" % i for i in range(40_000))  # 320 kB in which every place can be told


class Shim:
    """The functions that the preloaded library exports."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(None)
        self._lib.fault_range.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self._lib.fault_name.restype = ctypes.c_char_p
        self._lib.fault_range(*code_of_the_extension())

    def names(self) -> list[str]:
        names = []
        while name := self._lib.fault_name(len(names)):
            names.append(name.decode())
        return names

    def set(self, name: str = "", error: int = 0, nth: int = 0) -> None:
        self._lib.fault_set(name.encode(), error, nth)

    def seen(self, name: str) -> int:
        return self._lib.fault_seen(name.encode())

    def hits(self, name: str) -> int:
        return self._lib.fault_hits(name.encode())


def code_of_the_extension() -> tuple[int, int]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            if m := re.match(r"(\w+)-(\w+) r-xp .*/fdwait/_native[^/]*$", line):
                return int(m[1], 16), int(m[2], 16)
    raise RuntimeError("fdwait._native is not mapped")


class Fault:
    """The failure of one run, and which exceptions say it."""

    def __init__(self, name: str = "", error: int = 0) -> None:
        self.may_be_told = error in TOLD.get(name, ())
        self.told = {error, EBADF} if name in ("epoll_ctl_mod", "fcntl_getfd") else {error}

    def check(self, exc: BaseException) -> None:
        code = errno.ENOMEM if isinstance(exc, MemoryError) else getattr(exc, "errno", None)
        if not self.may_be_told or code not in self.told:
            raise AssertionError(f"not an answer to it: {exc!r}") from exc


def open_files() -> dict[str, str]:
    files = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            files[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return files


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def write_and_close(fd: int, data: bytes = PAYLOAD) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.close(fd)


def make_stop(fault: Fault) -> Stop:
    try:
        return Stop()
    except MemoryError as exc:
        fault.check(exc)
        return Stop()


def drain_to_the_end(fault: Fault, fd: int, expected: bytes, **how: object) -> None:
    """Go on after each exception as a caller would: all bytes, each once, and the end not before them."""
    got = b""
    for _ in range(10):
        try:
            result = drain(fd, timeout=10, **how)
        except (OSError, MemoryError) as exc:
            fault.check(exc)
            result = getattr(exc, "drained", None)
            if result is None:  # it had not begun
                continue
            assert result.end is None, result.end
        got += result.data
        assert result.total == len(result.data), result
        if result.end in (End.EOF, End.EXITED):
            break
    assert result.end in (End.EOF, End.EXITED), result.end
    assert got == expected, f"{len(got)} bytes of {len(expected)}"


# ---- the scenarios ----


def drain_pipe(fault: Fault) -> None:
    r, w = os.pipe()
    write_and_close(w, PAYLOAD[:50_000])
    drain_to_the_end(fault, r, PAYLOAD[:50_000])
    os.close(r)


def drain_pipe_that_is_written_to(fault: Fault) -> None:
    r, w = os.pipe()
    many = PAYLOAD * 20
    writer = in_thread(lambda: write_and_close(w, many))
    drain_to_the_end(fault, r, many)
    writer.join()
    os.close(r)


def drain_pipe_with_stop(fault: Fault) -> None:
    stop = make_stop(fault)
    r, w = os.pipe()
    writer = in_thread(lambda: write_and_close(w))
    drain_to_the_end(fault, r, PAYLOAD, stop=stop)
    writer.join()
    os.close(r)


def drain_into_a_window(fault: Fault) -> None:
    r, w = os.pipe()
    writer = in_thread(lambda: write_and_close(w))
    total, end = 0, None
    while end is not End.EOF:
        try:
            result = drain(r, timeout=10, keep=Window(head=1000, tail=1000))
        except (OSError, MemoryError) as exc:
            fault.check(exc)
            result = getattr(exc, "drained", None)
            if result is None:
                continue
        assert result.total == result.kept + result.elided
        total, end = total + result.total, result.end
    assert total == len(PAYLOAD)
    writer.join()
    os.close(r)


def drain_socket(fault: Fault) -> None:
    ours, theirs = socket.socketpair()
    writer = in_thread(lambda: write_and_close(theirs.detach()))
    drain_to_the_end(fault, ours.fileno(), PAYLOAD)
    writer.join()
    ours.close()


def drain_terminal(fault: Fault) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    write_and_close(slave, PAYLOAD[:3000])
    drain_to_the_end(fault, master, PAYLOAD[:3000])
    os.close(master)


def drain_file(fault: Fault) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(PAYLOAD)
        file.seek(0)
        drain_to_the_end(fault, file.fileno(), PAYLOAD)


def drain_part_of_a_file(fault: Fault) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(PAYLOAD)
        file.seek(0)
        try:
            result = drain(file.fileno(), limit=1000)
            assert result.end is End.LIMIT
            assert result.left in (None, len(PAYLOAD) - 1000)
        except (OSError, MemoryError) as exc:
            fault.check(exc)
            result = getattr(exc, "drained", None)
        got = result.data if result else b""
        assert PAYLOAD.startswith(got)
        drain_to_the_end(fault, file.fileno(), PAYLOAD[len(got) :])


def drain_of_a_process(fault: Fault) -> None:
    """The process ends while somebody else, here this very process, still holds the pipe."""
    r, w = os.pipe()
    process = subprocess.Popen(["sh", "-c", "echo hello"], stdout=w)
    drain_to_the_end(fault, r, b"hello\n", process=process, linger=0.01)
    assert process.wait() == 0
    os.close(w)
    os.close(r)


def drain_that_times_out(fault: Fault) -> None:
    r, w = os.pipe()
    os.write(w, b"hello")
    try:
        result = drain(r, timeout=0.01)
        assert result.end is End.TIMEOUT
    except (OSError, MemoryError) as exc:
        fault.check(exc)
        result = getattr(exc, "drained", None)
    got = result.data if result else b""
    os.close(w)
    drain_to_the_end(fault, r, b"hello"[len(got) :])
    assert b"hello".startswith(got)
    os.close(r)


def drain_that_is_stopped(fault: Fault) -> None:
    stop = make_stop(fault)
    r, w = os.pipe()
    os.write(w, b"hello")
    timer = threading.Timer(0.01, stop.set)
    timer.start()
    try:
        result = drain(r, timeout=10, stop=stop)
        assert result.end is End.STOPPED
    except (OSError, MemoryError) as exc:
        fault.check(exc)
        result = getattr(exc, "drained", None)
    timer.join()
    got = result.data if result else b""
    os.close(w)
    drain_to_the_end(fault, r, b"hello"[len(got) :])
    os.close(r)


def wait_with_a_waiter(fault: Fault) -> None:
    r, w = os.pipe()
    try:
        with FdWaiter(r) as waiter:
            assert waiter.wait(0) is False
            assert waiter.wait(0.005) is False
            timer = threading.Timer(0.005, os.write, [w, b"x"])
            timer.start()
            try:
                assert waiter.wait(10) is True
                assert waiter.wait(0) is True
            finally:
                timer.join()
    except (OSError, MemoryError) as exc:
        fault.check(exc)
    os.close(r)
    os.close(w)


def wait_for_both_directions(fault: Fault) -> None:
    ours, theirs = socket.socketpair()
    try:
        with FdWaiter(ours, READ | WRITE) as waiter:
            assert waiter.wait(0) is True
        with FdWaiter(ours, WRITE) as waiter:
            assert waiter.wait(1) is True
    except (OSError, MemoryError) as exc:
        fault.check(exc)
    ours.close()
    theirs.close()


def wait_on_a_file(fault: Fault) -> None:
    with tempfile.TemporaryFile() as file:
        try:
            with FdWaiter(file) as waiter:
                assert waiter.wait(0) is True
                assert waiter.wait(1) is True
        except (OSError, MemoryError) as exc:
            fault.check(exc)


def wait_without_an_object(fault: Fault) -> None:
    r, w = os.pipe()
    try:
        assert fdwait.wait_readable(r, 0) is False
        assert fdwait.wait_readable(r, 0.005) is False
        assert fdwait.wait_writable(w, 1) is True
        os.write(w, b"x")
        assert fdwait.wait_readable(r, 10) is True
    except (OSError, MemoryError) as exc:
        fault.check(exc)
    os.close(r)
    os.close(w)


def select_for_reading(fault: Fault) -> None:
    pipes = [os.pipe() for _ in range(100)]
    readers = [r for r, _ in pipes]
    os.write(pipes[7][1], b"x")
    try:
        for some in (readers[:10], readers):
            assert fdwait.select(some, [], [], 0) == ([readers[7]], [], [])
            assert fdwait.select(some, [], [], 5) == ([readers[7]], [], [])
        assert fdwait.select(readers[:5], [], [], 0.005) == ([], [], [])
    except (OSError, MemoryError) as exc:
        fault.check(exc)
    for fd in sum(pipes, ()):
        os.close(fd)


def select_for_everything(fault: Fault) -> None:
    r, w = os.pipe()
    try:
        assert fdwait.select([r], [w], [r], 1) == ([], [w], [])
        assert fdwait.select([r], [], [r], 0.005) == ([], [], [])
        os.write(w, b"x")
        assert fdwait.select([r], [w], [r, w], 1) == ([r], [w], [])
    except (OSError, MemoryError) as exc:
        fault.check(exc)
    os.close(r)
    os.close(w)


def info_about_the_kernel(fault: Fault) -> None:
    try:
        assert fdwait.info()
    except (OSError, MemoryError) as exc:
        fault.check(exc)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        drain_pipe,
        drain_pipe_that_is_written_to,
        drain_pipe_with_stop,
        drain_into_a_window,
        drain_socket,
        drain_terminal,
        drain_file,
        drain_part_of_a_file,
        drain_of_a_process,
        drain_that_times_out,
        drain_that_is_stopped,
        wait_with_a_waiter,
        wait_for_both_directions,
        wait_on_a_file,
        wait_without_an_object,
        select_for_reading,
        select_for_everything,
        info_about_the_kernel,
    )
}


# ---- running them ----


def places(seen: int) -> list[int]:
    """Which of so many calls fails: each of the first ones, and the last."""
    first = list(range(1, min(seen, 5) + 1))
    return first if seen <= 5 else [*first, seen]


def attempt(shim: Shim, scenario: Callable[[Fault], None], name: str, error: int, nth: int) -> None:
    before = open_files()
    problem = None
    shim.set(name, error, nth)
    try:
        scenario(Fault(name, error))
    except Exception as exc:
        problem = f"{type(exc).__name__}: {exc}"
    hits = shim.hits(name)
    shim.set()
    if problem is None and open_files() != before:
        problem = f"descriptors before {before}, after {open_files()}"
    print(json.dumps([name, errno.errorcode[error], nth, hits, problem]), flush=True)


def main(scenario: Callable[[Fault], None]) -> None:
    shim = Shim()
    scenario(Fault())  # what is made once for the process is made here
    shim.set()
    scenario(Fault())
    seen = {name: shim.seen(name) for name in shim.names()}
    for name in filter(seen.get, seen):
        for error in TRANSPARENT.get(name, []) + TOLD.get(name, []):
            for nth in places(seen[name]):
                attempt(shim, scenario, name, error, nth)


if __name__ == "__main__":
    main(SCENARIOS[sys.argv[1]])
