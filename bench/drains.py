"""Ways to read a pipe to its end: drain(), and the loops that programs write."""

import os
import select
import selectors
import time
from collections.abc import Callable

import fdwait
from bench.programs import c_reader, writer

MIB = 1 << 20


def drain(fd: int) -> int:
    return len(fdwait.drain(fd).data)


def drain_window(fd: int) -> int:
    return fdwait.drain(fd, keep=fdwait.Window(head=65536, tail=196608)).total


def _read_when(wait: Callable[[], object], fd: int, size: int) -> int:
    """The loop that every program has, and the bytes it returns."""
    chunks = []
    while True:
        wait()
        chunk = os.read(fd, size)
        if not chunk:
            return len(b"".join(chunks))
        chunks.append(chunk)


def select_4096(fd: int) -> int:
    return _read_when(lambda: select.select([fd], [], [], 1.0), fd, 4096)


def selectors_65536(fd: int) -> int:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return _read_when(lambda: selector.select(1.0), fd, 65536)


def poll_65536(fd: int) -> int:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return _read_when(lambda: poll.poll(1000), fd, 65536)


def epoll_65536(fd: int) -> int:
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN)
        return _read_when(lambda: epoll.poll(1.0), fd, 65536)


def read_65536(fd: int) -> int:
    chunks = []
    while chunk := os.read(fd, 65536):
        chunks.append(chunk)
    return len(b"".join(chunks))


DRAINS: dict[str, Callable[[int], int]] = {
    "drain()": drain,
    "drain(keep=Window)": drain_window,
    "select + os.read(4096)": select_4096,
    "selectors + os.read(65536)": selectors_65536,
    "poll + os.read(65536)": poll_65536,
    "epoll + os.read(65536)": epoll_65536,
    "os.read(65536) + join": read_65536,
}
if not hasattr(select, "epoll"):
    del DRAINS["epoll + os.read(65536)"]
C_READERS = {"C reader, one buffer": "discard", "C reader, keeps all": "keep"}
CASES = (*DRAINS, *C_READERS)


def seconds(name: str, size: int) -> float:
    """How long it takes to read `size` bytes from a fresh writer."""
    if name in C_READERS:
        return c_reader(C_READERS[name], size)
    with writer(size) as source:
        assert source.stdout is not None
        start = time.perf_counter()
        total = DRAINS[name](source.stdout.fileno())
        taken = time.perf_counter() - start
    if total != size:
        raise RuntimeError(f"{name} got {total} of {size} bytes")
    return taken
