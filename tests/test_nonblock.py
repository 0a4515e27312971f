"""O_NONBLOCK belongs to all who share the open file: it is left as found. B117 and B119."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import tty
from collections.abc import Callable

import pytest
from support import Owner, Task, cpu_below, fill, lasts, nonblocking, prints_pattern, python, stretch

import fdwait
from fdwait import READ, WRITE, End, FdWaiter, drain

Pipe = tuple[int, int]
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


def connect(kind: str, own: Owner) -> tuple[int, int]:
    if kind == "pipe":
        return own.pipe()
    if kind == "socketpair":
        a, b = socket.socketpair()
        return own(a.detach()), own(b.detach())
    master, slave = pty.openpty()
    tty.setraw(slave)
    return own(master), own(slave)


each_kind = pytest.mark.parametrize("kind", ["pipe", "socketpair", "pty"])
each_flag = pytest.mark.parametrize("flag", [False, True], ids=["blocking", "non-blocking"])


@each_kind
@each_flag
def test_b117_every_call_leaves_it_as_found(kind: str, flag: bool, own: Owner, place: Callable[[int], int]) -> None:
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd = place(fd)
    other = own.dup(fd)

    def unchanged() -> None:
        assert nonblocking(fd) is nonblocking(other) is flag

    def handler(*_: object) -> None:
        unchanged()  # also in the middle of a call
        raise KeyboardInterrupt

    with FdWaiter(fd, READ) as waiter:
        waiter.wait(0.001)
        unchanged()
    fdwait.wait_readable(fd, 0.001)
    fdwait.wait_writable(fd, 0.001)
    fdwait.select([fd], [fd], [fd], 0.001)
    unchanged()
    drain(fd, timeout=0.001)
    unchanged()
    os.write(peer, b"abc")
    drain(fd, limit=1)
    unchanged()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        sender = Task(os.kill, os.getpid(), signal.SIGUSR1, delay=0.05)
        with pytest.raises(KeyboardInterrupt):
            drain(fd)
        sender.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    unchanged()
    own.close(peer)
    drain(fd)
    unchanged()


def test_b117_the_terminal_that_a_command_shares_with_us(own: Owner) -> None:
    """Standard input, output and error of a child are one open file, which we drain meanwhile."""
    master, slave = pty.openpty()
    own(master)
    own(slave)
    code = """
        import fcntl, os
        flags = [bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) for fd in (0, 1, 2)]
        os.read(0, 1)
        flags += [bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) for fd in (0, 1, 2)]
        print(flags)
        """
    tty.setraw(slave)
    with subprocess.Popen(python(code), stdin=slave, stdout=slave, stderr=slave) as process:
        assert drain(slave, timeout=0.1).end is End.TIMEOUT  # we and the child, both at the slave
        os.write(master, b"x")
        own.close(slave)
        result = drain(master, process=process)
    assert result.data.strip() == repr([False] * 6).encode()


@each_kind
@each_flag
def test_b119_descriptors_that_come_either_way(kind: str, flag: bool, own: Owner, place: Callable[[int], int]) -> None:
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd = place(fd)
    data = stretch(0, 500_000)

    def write() -> None:
        for at in range(0, len(data), 1000):
            sent = at
            while sent < at + 1000:
                sent += os.write(peer, data[sent : at + 1000])
        own.close(peer)

    with cpu_below(0.05), lasts(0.1, 0.2):  # EAGAIN is handled by waiting
        assert drain(fd, timeout=0.1).total == 0
    writer = Task(write)
    result = drain(fd)
    writer.result()
    assert result.data == data
    assert result.end is End.EOF
    assert nonblocking(fd) is flag


def test_b119_writability_of_a_non_blocking_descriptor(own: Owner) -> None:
    _, w = own.pipe()
    os.set_blocking(w, False)
    fill(w)
    os.set_blocking(w, False)
    with FdWaiter(w, WRITE) as waiter, lasts(0.1, 0.2):
        assert waiter.wait(0.1) is False
    assert nonblocking(w) is True


def test_b119_flipped_in_mid_stream_by_another_process(start: Start, place: Callable[[int], int], own: Owner) -> None:
    size = 50_000_021
    process, out = start(prints_pattern(size), place)
    flips = python(
        """
        import os
        while True:
            os.set_blocking(0, False)
            os.set_blocking(0, True)
        """
    )
    with subprocess.Popen(flips, stdin=out) as flipper:
        result = drain(out, process=process)
        flipper.kill()
    assert result.total == size
    assert result.data == stretch(0, size)
    assert result.end is End.EOF


@each_kind
def test_b119_a_sibling_takes_the_bytes_first(kind: str, own: Owner) -> None:
    """Readiness, and then another reader was faster: a drain goes on waiting, it does not hang."""
    fd, peer = connect(kind, own)
    sibling = own.dup(fd)
    stop = fdwait.Stop()
    taken: list[bytes] = []

    def steal() -> None:
        while not stop.is_set():
            if fdwait.wait_readable(sibling, 0.01):
                taken.append(drain(sibling, timeout=0).data)

    thief = Task(steal)
    draining = Task(drain, fd, stop=stop)
    sent = b""
    for i in range(300):
        piece = b"%05d" % i
        os.write(peer, piece)
        sent += piece
    with lasts(0, 2):  # neither of them is caught in a read
        stop.set()
        ours = draining.result()
        thief.result()
    rest = drain(fd, timeout=0).data
    assert len(ours.data) + sum(map(len, taken)) + len(rest) == len(sent)
