"""Field cases of class SPIN: hang-up, error, closed and odd descriptors, and no busy loop."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from entry import ENTRIES
from states import pair, reset, shut_down, tcp, terminal
from support import Owner, Task, cpu_below, fill, lasts, program, until_readable

import fdwait
from fdwait import WRITE, End, FdWaiter, drain


def test_b024_a_closed_descriptor_beside_an_idle_one(own: Owner, place: Callable[[int], int]) -> None:
    idle, _ = own.pipe()
    fd = place(own.pipe()[0])
    waiter = FdWaiter(fd)
    own.close(fd)
    calls = [
        lambda: waiter.wait(5),
        lambda: FdWaiter(fd),
        lambda: fdwait.wait_readable(fd, 5),
        lambda: fdwait.wait_writable(fd, 5),
        lambda: drain(fd, timeout=5),
        lambda: fdwait.select([fd], [], [], 5),
        lambda: fdwait.select([idle, fd], [], [], 5),
        lambda: fdwait.select([idle], [], [fd], 5),
        lambda: fdwait.select([], [fd], [], 5),
    ]
    with cpu_below(0.05):
        for call in calls:
            with lasts(0, 0.1), pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.EBADF
    waiter.close()


def broken_pipe(own: Owner) -> int:
    r, w = own.pipe()
    own.close(r)
    return w


def reset_tcp(own: Owner) -> int:
    a, b = tcp(own)
    reset(own, b)
    return until_readable(a)


def lonely_socket(own: Owner) -> int:
    a, b = pair(own)
    own.close(b)
    return a


WRITABLE = {
    "wait_writable": fdwait.wait_writable,
    "select": lambda fd, timeout: bool(fdwait.select([], [fd], [], timeout)[1]),
    "FdWaiter": lambda fd, timeout: FdWaiter(fd, WRITE).wait(timeout),
}


@pytest.mark.parametrize("wait", WRITABLE.values(), ids=WRITABLE)
@pytest.mark.parametrize("make", [broken_pipe, reset_tcp, lonely_socket])
def test_b026_a_writer_wakes_up_once_and_gets_the_error(
    make: Callable[[Owner], int],
    wait: Callable[[int, float], bool],
    own: Owner,
    place: Callable[[int], int],
) -> None:
    fd = place(make(own))
    wake_ups = 0
    with cpu_below(0.05), pytest.raises((BrokenPipeError, ConnectionResetError)):
        while wake_ups < 10:
            assert wait(fd, 1) is True
            wake_ups += 1
            os.write(fd, b"x")
    assert wake_ups == 1


def test_b028_idle_terminals(own: Owner, place: Callable[[int], int]) -> None:
    """Masters and slaves, through every entry point at once: a second of sleep, and then a byte."""
    tasks, peers = [], []
    for name, wait in ENTRIES.items():
        for side in "master", "slave":
            if name == "FdWaiter on poll":
                continue
            master, slave = terminal(own)
            fd, peer = (place(master), slave) if side == "master" else (place(slave), master)
            peers.append(peer)
            tasks.append(Task(wait, fd, 20))
    with cpu_below(0.1), lasts(0.5, 0.2):
        time.sleep(0.5)
    assert all(task.is_alive() for task in tasks)
    for peer in peers:
        os.write(peer, b"\n")
    with lasts(0, 0.5):
        assert [task.result() for task in tasks] == [True] * len(tasks)


def test_b028_the_controlling_terminal_by_its_alias(own: Owner) -> None:
    master, slave = terminal(own)
    code = """
        import fcntl, os, termios, time
        import fdwait
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        fd = os.open("/dev/tty", os.O_RDWR)
        start = time.process_time()
        with fdwait.FdWaiter(fd) as waiter:
            assert waiter.wait(0.5) is False
        assert fdwait.wait_readable(fd, 0.1) is False
        assert fdwait.select([fd], [], [], 0.1) == ([], [], [])
        assert time.process_time() - start < 0.1
        os.write(1, b"ready")
        assert fdwait.wait_readable(fd, 20) is True
        assert fdwait.select([fd], [], [], 20)[0] == [fd]
        with fdwait.FdWaiter(fd) as waiter:
            assert waiter.wait(20) is True
        """
    r, w = own.pipe()

    def answer() -> None:
        assert os.read(r, 5) == b"ready"
        os.write(master, b"line\n")

    answering = Task(answer)
    subprocess.run(program(code), stdin=slave, stdout=w, start_new_session=True, check=True)
    answering.result()


@pytest.mark.parametrize("source", ["text", "buffered", "unbuffered", "number"])
def test_b030_each_kind_of_stream_ends(source: str) -> None:
    options = {"text": {"text": True}, "unbuffered": {"bufsize": 0}}.get(source, {})
    with subprocess.Popen(["printf", "x"], stdout=subprocess.PIPE, **options) as process:
        assert process.stdout is not None
        given = process.stdout.fileno() if source == "number" else process.stdout
        if source == "text":
            with pytest.raises(TypeError):
                drain(given)
            given = process.stdout.buffer
        result = drain(given, process=process)
    assert (result.data, result.end) == (b"x", End.EOF)


def test_a_hang_up_that_was_not_asked_for_does_not_spin(own: Owner) -> None:
    """A writer at a full socket whose peer has finished: HUP comes unasked, and is no room."""
    a, b = pair(own)
    fill(a)
    shut_down(a, socket.SHUT_RD)
    shut_down(b, socket.SHUT_WR)
    with cpu_below(0.05), lasts(0.4, 0.3):
        assert fdwait.wait_writable(a, 0.2) is False
        with FdWaiter(a, WRITE) as waiter:
            assert waiter.wait(0.2) is False
