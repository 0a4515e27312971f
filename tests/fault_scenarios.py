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
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import tty
from collections.abc import Callable, Iterator
from errno import (
    EAGAIN,
    EBADF,
    EBUSY,
    ECONNRESET,
    EINTR,
    EINVAL,
    EIO,
    EMFILE,
    ENFILE,
    ENOBUFS,
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
    EPIPE,
    ESPIPE,
    ETIMEDOUT,
)

import fdwait
from fdwait import READ, WRITE, Completed, End, FdWaiter, Stop, Window, drain, feed, run

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
    "write": [EINTR, EAGAIN],
    "pwritev2": [EINTR, EAGAIN, EOPNOTSUPP, ENOSYS, EPERM, EINVAL],
    "send": [EINTR, EAGAIN],
    "fcntl_getpipesz": [EBADF, EINVAL],
    "fcntl_setpipesz": [EPERM, EBUSY, ENOMEM],
    "ioctl_fionread": [ENOTTY, EINVAL],
    "ioctl_tiocgptn": [ENOTTY, EIO],
    "tcgetattr": [ENOTTY, EIO],
    "getsockopt": [ENOPROTOOPT, ENOMEM],
    "lseek": [ESPIPE, EINVAL],
    "pidfd_open": [EMFILE, ENFILE, ENOMEM, ENODEV, ENOSYS, EPERM, EINVAL],
    "waitid": [EINTR],  # ECHILD would be a lie: the child is there
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
    "write": [EPIPE, EIO, ENOMEM, ENOSPC],
    "pwritev2": [EPIPE, EIO, ENOMEM],
    "send": [EPIPE, ECONNRESET, ETIMEDOUT, ENOBUFS, ENOMEM],
    "fcntl_getfd": [EBADF],
    "fcntl_getfl": [EBADF],
    "fcntl_setfl": [EPERM, EINVAL],
    "fcntl_dupfd": [EMFILE],
    "fstat": [EBADF, EIO, ENOMEM, EOVERFLOW],
    "mmap": [ENOMEM],
    "malloc": [ENOMEM],
    "calloc": [ENOMEM],
    "realloc": [ENOMEM],
}

# What only run() tells: it cannot do without pipes.
TOLD_BY_RUN = {"pipe2": TRANSPARENT["pipe2"]}

# The kernel, or a sandbox, does not know RWF_NOWAIT.
REFUSALS = [EOPNOTSUPP, ENOSYS, EPERM, EINVAL]

PAYLOAD = b"".join(b"%07d\n" % i for i in range(40_000))  # 320 kB in which every place can be told


class Shim:
    """The functions that the preloaded library exports."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(None)
        self._lib.fault_range.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self._lib.fault_name.restype = ctypes.c_char_p
        self.nowait_works = fdwait.info()["features"]["RWF_NOWAIT on pipes"]
        self._lib.fault_range(*code_of_the_extension())

    def names(self) -> list[str]:
        names = []
        while name := self._lib.fault_name(len(names)):
            names.append(name.decode())
        return names

    def set(self, name: str = "", error: int = 0, nth: int = 0) -> None:
        self._lib.fault_set(name.encode(), error, nth)

    @contextlib.contextmanager
    def always(self, name: str, error: int) -> Iterator[None]:
        self._lib.fault_always(name.encode(), error)
        try:
            yield
        finally:
            self._lib.fault_always(name.encode(), 0)

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

    def __init__(self, shim: Shim, name: str = "", error: int = 0, nth: int = 0) -> None:
        self.shim, self.name, self.error, self.nth = shim, name, error, nth
        self.told = {error, EBADF} if name in ("epoll_ctl_mod", "fcntl_getfd") else {error}

    def is_hit(self) -> bool:
        return bool(self.name) and self.shim.hits(self.name) > 0

    def check(self, exc: BaseException, *, by_run: bool = False) -> None:
        may_be_told = [*TOLD.get(self.name, ()), *(TOLD_BY_RUN.get(self.name, ()) if by_run else ())]
        code = errno.ENOMEM if isinstance(exc, MemoryError) else getattr(exc, "errno", None)
        if not self.is_hit() or self.error not in may_be_told or code not in self.told:
            raise AssertionError(f"not an answer to it: {exc!r}") from exc

    def nobody_reads_the_input(self) -> bool:
        """As far as run() can tell, and that is no error."""
        return self.name == "write" and self.error == EPIPE and self.is_hit()

    def is_uncounted(self) -> bool:
        """What lies unread in a pipe is not known, so neither is what was read."""
        return self.name == "ioctl_fionread" and self.is_hit()

    def is_not_killed(self) -> bool:
        return self.name == "kill" and self.is_hit()

    def check_ways(self, *expected: str) -> None:
        """The calls that the bytes were written by. Where RWF_NOWAIT is refused it is not asked for again."""
        ways = {name for name in ("pwritev2", "send", "write") if self.shim.seen(name)}
        if self.name == "pwritev2" and self.error in REFUSALS and self.is_hit():
            expected = "pwritev2", "write"
            assert self.shim.seen("pwritev2") == self.nth
        assert ways == set(expected), ways


def open_files() -> dict[str, str]:
    files = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            files[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return files


def blocked_signals() -> set[str]:
    """The signal masks that the threads of this process have, and what is pending."""
    found = {f"pending {signal.sigpending()}"}
    for thread in threading.enumerate():  # one that is just ending, which the kernel lists still, blocks everything
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread.native_id}/status") as status:
            found |= set(re.findall(r"SigBlk:\s*\w+", status.read()))
    return found


SIGNALS = blocked_signals()  # before the first call
starts: list[object] = []  # of commands


def note_start(event: str, command: object) -> None:
    if event == "subprocess.Popen":
        starts.append(command)


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


class Reader(threading.Thread):
    """Reads all that comes, to the end of file or *size* bytes."""

    def __init__(self, fd: int, size: int = sys.maxsize) -> None:
        super().__init__(daemon=True)
        self._fd, self._size = fd, size
        self._got = bytearray()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the end of a terminal
            while len(self._got) < self._size and (some := os.read(self._fd, 1 << 20)):
                self._got += some

    def result(self) -> bytes:
        self.join(10)
        assert not self.is_alive(), f"{len(self._got)} bytes came, and no end"
        return bytes(self._got)


def feed_to_the_end(fault: Fault, fd: int, data: bytes, **how: object) -> None:
    """Go on after each exception from where it says: only an exact count gives the reader each byte once."""
    for _ in range(10):
        try:
            taken = feed(fd, data, timeout=10, **how)
            assert taken == len(data)
        except (OSError, MemoryError) as exc:
            fault.check(exc)
            taken = exc.taken
        assert 0 <= taken <= len(data)
        data = data[taken:]
        if not data:
            break
    assert not data, f"{len(data)} bytes are left"


def run_it(fault: Fault, args: list[str], **how: object) -> tuple[Completed | None, bool]:
    """What there is of the command, and whether it was run to its end. None: it was never started."""
    before = len(starts)
    try:
        return run(args, **({"timeout": 10} | how)), True
    except (OSError, MemoryError) as exc:
        fault.check(exc, by_run=True)
        completed = getattr(exc, "completed", None)
    assert (completed is None) == (len(starts) == before), f"{starts[before:]}: {completed}"
    if completed:
        assert completed.returncode is not None
    return completed, False


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


def feed_pipe(fault: Fault, ways: tuple[str, ...] = (), **how: object) -> None:
    r, w = os.pipe()
    reader = Reader(r)
    feed_to_the_end(fault, w, PAYLOAD, **how)
    fault.check_ways(*ways or ways_into_a_pipe(fault))
    os.close(w)
    assert reader.result() == PAYLOAD
    os.close(r)


def ways_into_a_pipe(fault: Fault) -> tuple[str, ...]:
    return ("pwritev2",) if fault.shim.nowait_works else ("pwritev2", "write")


def feed_pipe_without_nowait(fault: Fault) -> None:
    with fault.shim.always("pwritev2", EOPNOTSUPP):
        feed_pipe(fault, ("pwritev2", "write"))


def feed_pipe_with_stop(fault: Fault) -> None:
    feed_pipe(fault, stop=make_stop(fault))


def feed_pipe_in_blocks(fault: Fault) -> None:
    counts: list[int] = []
    feed_pipe(fault, block=100_000, progress=counts.append)
    assert all(0 < count <= len(PAYLOAD) for count in counts)


def feed_nonblocking_pipe(fault: Fault) -> None:
    r, w = os.pipe()
    os.set_blocking(w, False)
    reader = Reader(r)
    feed_to_the_end(fault, w, PAYLOAD)
    fault.check_ways(*ways_into_a_pipe(fault))
    assert not os.get_blocking(w)
    os.close(w)
    assert reader.result() == PAYLOAD
    os.close(r)


def feed_socket(fault: Fault) -> None:
    ours, theirs = socket.socketpair()
    reader = Reader(theirs.fileno())
    feed_to_the_end(fault, ours.fileno(), PAYLOAD)
    fault.check_ways("send")
    ours.close()
    assert reader.result() == PAYLOAD
    theirs.close()


def feed_file(fault: Fault, **how: object) -> None:
    data = PAYLOAD * 7  # more than one turn
    with tempfile.TemporaryFile() as file:
        feed_to_the_end(fault, file.fileno(), data, **how)
        fault.check_ways("write")
        file.seek(0)
        assert file.read() == data


def feed_file_with_stop(fault: Fault) -> None:
    feed_file(fault, stop=make_stop(fault))


def feed_raw_terminal(fault: Fault) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    feed_slave(fault, master, slave, PAYLOAD[:3000], PAYLOAD[:3000])


def feed_cooked_terminal(fault: Fault) -> None:
    master, slave = pty.openpty()
    feed_slave(fault, master, slave, PAYLOAD[:3000], PAYLOAD[:3000].replace(b"\n", b"\r\n"))


def feed_slave(fault: Fault, master: int, slave: int, data: bytes, expected: bytes) -> None:
    reader = Reader(master)
    feed_to_the_end(fault, slave, data)
    fault.check_ways("pwritev2", "write")
    os.close(slave)
    assert reader.result() == expected
    os.close(master)


def feed_master(fault: Fault) -> None:
    """What is typed into a terminal. Its end would throw away what is not read yet."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    reader = Reader(slave, 3000)
    feed_to_the_end(fault, master, PAYLOAD[:3000])
    fault.check_ways("pwritev2", "write")
    assert reader.result() == PAYLOAD[:3000]
    os.close(master)
    os.close(slave)


def feed_that_times_out(fault: Fault) -> None:
    r, w = os.pipe()
    try:
        feed(w, PAYLOAD, timeout=0.01)
        raise AssertionError("a pipe does not take that much")
    except TimeoutError as exc:
        if exc.errno:  # that of a descriptor
            fault.check(exc)
        check_taken(r, w, exc.taken, is_full=not exc.errno)
    except (OSError, MemoryError) as exc:
        fault.check(exc)
        check_taken(r, w, exc.taken)


def feed_that_is_stopped(fault: Fault) -> None:
    stop = make_stop(fault)
    r, w = os.pipe()
    timer = threading.Timer(0.01, stop.set)
    timer.start()
    try:
        taken = feed(w, PAYLOAD, timeout=10, stop=stop)
        assert stop.is_set()
    except (OSError, MemoryError) as exc:
        fault.check(exc)
        taken = exc.taken
    timer.join()
    check_taken(r, w, taken)


def check_taken(r: int, w: int, taken: int, *, is_full: bool = False) -> None:
    """It is what the pipe has, neither more nor less. And it closes the pipe."""
    if is_full:
        os.set_blocking(w, False)
        with contextlib.suppress(BlockingIOError):
            raise AssertionError(f"there was room for {os.write(w, PAYLOAD)} more")
    os.close(w)
    with open(r, "rb") as pipe:
        got = pipe.read()
    assert got == PAYLOAD[:taken], f"{len(got)} bytes, not {taken}"


def feed_pipe_that_nobody_reads(fault: Fault) -> None:
    r, w = os.pipe()
    os.close(r)
    taken = None
    try:
        taken = feed(w, PAYLOAD, timeout=10)
    except (OSError, MemoryError) as exc:
        if not isinstance(exc, BrokenPipeError):
            fault.check(exc)
        assert exc.taken == 0  # noqa: PT017 -- pytest is not here
    assert taken is None, "nobody can have taken it"
    os.close(w)


def run_with_two_outputs(fault: Fault) -> None:
    """An end that says that the output is complete is believed."""
    done, is_whole = run_it(fault, ["sh", "-c", "echo out; echo error >&2"])
    if is_whole:
        assert (done.returncode, done.end) == (0, End.EOF)
    elif done:
        assert b"out\n".startswith(done.stdout)
        assert b"error\n".startswith(done.stderr)
    if done and done.end is End.EOF:
        assert (done.stdout_end, done.stderr_end, done.stdout, done.stderr) == (End.EOF, End.EOF, b"out\n", b"error\n")


def run_with_input_and_outputs(fault: Fault, **how: object) -> None:
    done, is_whole = run_it(fault, ["tee", "/dev/stderr"], input=PAYLOAD, **how)
    if not done:
        return
    assert PAYLOAD.startswith(done.stdout), f"{len(done.stdout)} bytes that are not its output"
    assert PAYLOAD.startswith(done.stderr), f"{len(done.stderr)} bytes that are not its output"
    if not fault.is_uncounted():
        assert max(len(done.stdout), len(done.stderr)) <= done.stdin_taken <= len(PAYLOAD)
    if is_whole:
        whole = done.stdin_taken if fault.nobody_reads_the_input() else len(PAYLOAD)
        assert (len(done.stdout), len(done.stderr)) == (whole, whole)
        assert fault.is_uncounted() or done.stdin_taken == whole
        assert (done.returncode, done.end) == (0, End.EOF), done
        fault.check_ways("write")


def run_with_an_idle_stop(fault: Fault) -> None:
    run_with_input_and_outputs(fault, stop=make_stop(fault))


def run_without_pidfd(fault: Fault) -> None:
    """The exit is looked for, not told."""
    with fault.shim.always("pidfd_open", ENOSYS):
        run_with_input_and_outputs(fault)


def run_without_standard_input(fault: Fault) -> None:
    """The pipes must not get its number."""
    spare = os.dup(0)
    os.close(0)
    try:
        run_with_input_and_outputs(fault)
    finally:
        os.dup2(spare, 0)
        os.close(spare)


def run_with_a_window(fault: Fault) -> None:
    done, is_whole = run_it(fault, ["tee", "/dev/stderr"], input=PAYLOAD, keep=Window(head=1000, tail=1000))
    if not done:
        return
    for data, elided in ((done.stdout, done.stdout_elided), (done.stderr, done.stderr_elided)):
        if elided:
            assert data.startswith(PAYLOAD[:1000])
            assert data.endswith(PAYLOAD[1000 + elided : 2000 + elided])
            assert str(elided).encode() in data[1000:-1000]
        else:
            assert PAYLOAD.startswith(data)
        if is_whole:
            whole = done.stdin_taken if fault.nobody_reads_the_input() else len(PAYLOAD)
            assert elided == max(0, whole - 2000)
    assert 0 <= done.stdin_taken <= len(PAYLOAD)
    if is_whole:
        assert (done.returncode, done.end) == (0, End.EOF), done


def run_that_reads_one_line(fault: Fault) -> None:
    """The count is of what the command has read, not of what the pipe took: dash reads byte by byte."""
    command = """read -r line; printf '%s\\n' "$line"; printf '%s\\n' "$line" >&2"""
    done, is_whole = run_it(fault, ["sh", "-c", command], input=PAYLOAD)
    if not done:
        return
    line = PAYLOAD[:8]
    if is_whole and not (fault.nobody_reads_the_input() and fault.nth == 1):
        assert (done.stdout, done.stderr) == (line, line)
        assert (done.returncode, done.end) == (0, End.EOF)
        assert fault.is_uncounted() or done.stdin_taken == len(line), done.stdin_taken
    else:  # it may have found its input ended
        assert all(line.startswith(out) or out == b"\n" for out in (done.stdout, done.stderr)), done
        assert fault.is_uncounted() or done.stdin_taken <= len(line), done.stdin_taken


def run_into_the_timeout(fault: Fault) -> None:
    """With a process group, which is killed."""
    r, w = os.pipe()
    args = ["sh", "-c", "echo hello; exec cat"]
    note: list[str] = []
    try:
        done, is_whole = run_it(fault, args, stdin=r, timeout=0.02, linger=0, start_new_session=True)
        assert not is_whole, done
    except subprocess.TimeoutExpired as exc:
        done, is_whole = exc.completed, True
        note = getattr(exc, "__notes__", [])
    if done:
        assert b"hello\n".startswith(done.stdout)
        assert done.stderr == b""
    os.close(w)  # what was not killed ends by this
    os.close(r)
    if is_whole:
        assert bool(note) == fault.is_not_killed(), note
        check_killed(fault, done, End.TIMEOUT)


def run_that_is_stopped(fault: Fault) -> None:
    """From another thread, when the output is there: so it is in the result."""
    stop = make_stop(fault)
    r, w = os.pipe()
    told, tell = os.pipe()
    stopper = in_thread(lambda: os.read(told, 1) and stop.set())
    args = ["sh", "-c", f"echo hello; echo >/dev/fd/{tell}; exec cat"]
    done, is_whole = run_it(fault, args, stdin=r, linger=0, stop=stop, pass_fds=[tell])
    os.close(tell)
    stopper.join()
    if done:
        assert b"hello\n".startswith(done.stdout)
        assert done.stderr == b""
    for fd in (r, w, told):
        os.close(fd)
    if is_whole:
        assert done.stdout == b"hello\n"
        check_killed(fault, done, End.STOPPED)


def check_killed(fault: Fault, done: Completed, end: End) -> None:
    assert done.end is end
    if fault.is_not_killed():
        assert done.returncode is None
        assert os.waitpid(-1, 0)[1] == 0  # it saw the end of its input
    else:
        assert done.returncode == -signal.SIGKILL, done


FEEDS = (
    feed_pipe,
    feed_pipe_without_nowait,
    feed_pipe_with_stop,
    feed_pipe_in_blocks,
    feed_nonblocking_pipe,
    feed_socket,
    feed_file,
    feed_file_with_stop,
    feed_raw_terminal,
    feed_cooked_terminal,
    feed_master,
    feed_that_times_out,
    feed_that_is_stopped,
    feed_pipe_that_nobody_reads,
)

RUNS = (
    run_with_two_outputs,
    run_with_input_and_outputs,
    run_with_an_idle_stop,
    run_without_pidfd,
    run_without_standard_input,
    run_with_a_window,
    run_that_reads_one_line,
    run_into_the_timeout,
    run_that_is_stopped,
)

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
        *FEEDS,
        *RUNS,
    )
}


# ---- running them ----


def places(seen: int) -> list[int]:
    """Which of so many calls fails: each of the first ones, and the last."""
    first = list(range(1, min(seen, 5) + 1))
    return first if seen <= 5 else [*first, seen]


def refuse_sigpipe(*_: object) -> None:
    raise AssertionError("SIGPIPE was raised")


def children_left() -> str | None:
    try:
        pid, _ = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        for child in map(int, children.read().split()):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return "a child was left: " + ("a zombie" if pid else "it runs")


def feed_a_word() -> None:
    r, w = os.pipe()
    assert feed(w, b"word", timeout=10) == 4
    assert os.read(r, 10) == b"word"
    os.close(w)
    os.close(r)


def run_cat() -> None:
    done = run(["cat"], input=b"word", timeout=10)
    assert (done.stdout, done.stderr, done.stdin_taken, done.returncode) == (b"word", b"", 4, 0), done


def next_call(scenario: Callable[[Fault], None]) -> None:
    if scenario in FEEDS:
        feed_a_word()
    elif scenario in RUNS:
        run_cat()


def problem_in(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Exception as exc:
        place = traceback.extract_tb(exc.__traceback__)[-1]
        return f"{type(exc).__name__} in {place.name}, line {place.lineno}: {exc}"
    return None


def close_pidfds(numbers: set[str]) -> None:
    """The watch of an exit that is said to be closed is not closed again: its number might be another file's."""
    for number in numbers:
        if "pidfd" in os.readlink(f"/proc/self/fd/{number}"):
            os.close(int(number))


def attempt(shim: Shim, scenario: Callable[[Fault], None], name: str, error: int, nth: int) -> None:
    before = open_files()
    shim.set(name, error, nth)
    problem = problem_in(lambda: scenario(Fault(shim, name, error, nth)))
    hits = shim.hits(name)
    shim.set()
    left = children_left()
    problem = problem or left
    if (name, error) == ("fcntl_getfd", EBADF):
        close_pidfds(set(open_files()) - set(before))
    if problem is None and (after := open_files()) != before:
        problem = f"descriptors before {before}, after {after}"
    if problem is None and (after := blocked_signals()) != SIGNALS:
        problem = f"signals before {SIGNALS}, after {after}"
    problem = problem or problem_in(lambda: next_call(scenario))
    print(json.dumps([name, errno.errorcode[error], nth, hits, problem]), flush=True)


def main(scenario: Callable[[Fault], None]) -> None:
    sys.addaudithook(note_start)
    signal.signal(signal.SIGPIPE, refuse_sigpipe)
    os.environ.pop("LD_PRELOAD", None)  # no command that is run needs the shim
    shim = Shim()
    scenario(Fault(shim))  # what is made once for the process is made here
    shim.set()
    scenario(Fault(shim))
    seen = {name: shim.seen(name) for name in shim.names()}
    for name in filter(seen.get, seen):
        for error in TRANSPARENT.get(name, []) + TOLD.get(name, []):
            for nth in places(seen[name]):
                attempt(shim, scenario, name, error, nth)


if __name__ == "__main__":
    main(SCENARIOS[sys.argv[1]])
