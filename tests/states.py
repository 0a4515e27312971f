"""Every kind of descriptor in every state, for the conformance matrix.

Each function makes one descriptor, below 1024, in one state and returns it; the Owner closes what it needs.
"""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import struct
import sys
import tempfile
import tty
from collections.abc import Callable

from support import Owner, fill, until_readable

Make = Callable[[Owner], int]
STATES: dict[str, Make] = {}


def state(kind: str, name: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        STATES[f"{kind}: {name}"] = make
        return make

    return register


# ---- pipes ----


@state("pipe, read end", "idle")
def _(own: Owner) -> int:
    return own.pipe()[0]


@state("pipe, read end", "data")
def _(own: Owner) -> int:
    r, w = own.pipe()
    os.write(w, b"x")
    return r


@state("pipe, read end", "data and hang-up")
def _(own: Owner) -> int:
    r, w = own.pipe()
    os.write(w, b"x")
    own.close(w)
    return r


@state("pipe, read end", "hang-up")
def _(own: Owner) -> int:
    r, w = own.pipe()
    own.close(w)
    return r


@state("pipe, write end", "room")
def _(own: Owner) -> int:
    return own.pipe()[1]


@state("pipe, write end", "full")
def _(own: Owner) -> int:
    _, w = own.pipe()
    fill(w)
    return w


@state("pipe, write end", "error")
def _(own: Owner) -> int:
    r, w = own.pipe()
    own.close(r)
    return w


@state("pipe, write end", "full and error")
def _(own: Owner) -> int:
    r, w = own.pipe()
    fill(w)
    own.close(r)
    return w


# ---- FIFOs ----


def fifo(own: Owner) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "fifo")
        os.mkfifo(path)
        r = own(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        return r, own(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@state("FIFO, read end", "no writer yet")
def _(own: Owner) -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "fifo")
        os.mkfifo(path)
        return own(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@state("FIFO, read end", "idle")
def _(own: Owner) -> int:
    return fifo(own)[0]


@state("FIFO, read end", "data")
def _(own: Owner) -> int:
    r, w = fifo(own)
    os.write(w, b"x")
    return r


@state("FIFO, read end", "data and hang-up")
def _(own: Owner) -> int:
    r, w = fifo(own)
    os.write(w, b"x")
    own.close(w)
    return r


@state("FIFO, read end", "hang-up")
def _(own: Owner) -> int:
    r, w = fifo(own)
    own.close(w)
    return r


@state("FIFO, write end", "room")
def _(own: Owner) -> int:
    return fifo(own)[1]


@state("FIFO, write end", "full")
def _(own: Owner) -> int:
    _, w = fifo(own)
    fill(w)
    return w


@state("FIFO, write end", "error")
def _(own: Owner) -> int:
    r, w = fifo(own)
    own.close(r)
    return w


# ---- sockets ----


def pair(own: Owner) -> tuple[int, int]:
    a, b = socket.socketpair()
    return own(a.detach()), own(b.detach())


def tcp(own: Owner) -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        a = socket.create_connection(server.getsockname())
        b, _ = server.accept()
    return own(a.detach()), own(b.detach())


def shut_down(fd: int, how: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as s:
        s.shutdown(how)


def reset(own: Owner, fd: int) -> None:
    """Close a TCP connection so that the peer gets a reset, not an end."""
    with socket.socket(fileno=os.dup(fd)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    own.close(fd)


SOCKETS: dict[str, Callable[[Owner], tuple[int, int]]] = {"socketpair": pair, "TCP": tcp}


def _socket_states(kind: str, connect: Callable[[Owner], tuple[int, int]]) -> None:
    @state(kind, "idle")
    def _(own: Owner) -> int:
        return connect(own)[0]

    @state(kind, "data")
    def _(own: Owner) -> int:
        a, b = connect(own)
        os.write(b, b"x")
        return until_readable(a)

    @state(kind, "data and hang-up")
    def _(own: Owner) -> int:
        a, b = connect(own)
        os.write(b, b"x")
        own.close(b)
        return until_readable(a)

    @state(kind, "hang-up")
    def _(own: Owner) -> int:
        a, b = connect(own)
        own.close(b)
        return until_readable(a)

    @state(kind, "peer finished writing")
    def _(own: Owner) -> int:
        a, b = connect(own)
        shut_down(b, socket.SHUT_WR)
        return until_readable(a)

    @state(kind, "we finished writing")
    def _(own: Owner) -> int:
        a, _ = connect(own)
        shut_down(a, socket.SHUT_WR)
        return a

    @state(kind, "full")
    def _(own: Owner) -> int:
        a, _ = connect(own)
        fill(a)
        return a


for _kind, _connect in SOCKETS.items():
    _socket_states(_kind, _connect)


@state("TCP", "error")
def _(own: Owner) -> int:
    a, b = tcp(own)
    reset(own, b)
    return until_readable(a)


@state("TCP", "refused")
def _(own: Owner) -> int:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but not listening
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(nobody.getsockname())
        return until_readable(own(client.detach()))


@state("TCP", "unconnected")
def _(own: Owner) -> int:
    return own(socket.socket().detach())


@state("TCP", "out-of-band byte")
def _(own: Owner) -> int:
    a, b = tcp(own)
    with socket.socket(fileno=os.dup(b)) as peer:
        peer.send(b"!", socket.MSG_OOB)
    # Loopback delivers within send(); the comparison below would not notice a late byte.
    return a


@state("TCP", "out-of-band byte behind data")
def _(own: Owner) -> int:
    a, b = tcp(own)
    with socket.socket(fileno=os.dup(b)) as peer:
        peer.send(b"x")
        peer.send(b"!", socket.MSG_OOB)
    return until_readable(a)


@state("TCP", "listening")
def _(own: Owner) -> int:
    return own(socket.create_server(("127.0.0.1", 0)).detach())


@state("TCP", "connection waiting")
def _(own: Owner) -> int:
    server = socket.create_server(("127.0.0.1", 0))
    own(socket.create_connection(server.getsockname()).detach())
    return until_readable(own(server.detach()))


# ---- terminals ----


def terminal(own: Owner) -> tuple[int, int]:
    master, slave = pty.openpty()
    return own(master), own(slave)


@state("PTY master", "idle")
def _(own: Owner) -> int:
    return terminal(own)[0]


@state("PTY master", "data")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    os.write(slave, b"x")
    return until_readable(master)


@state("PTY master", "data and hang-up")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    os.write(slave, b"x")
    own.close(slave)
    return until_readable(master)


@state("PTY master", "hang-up")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    own.close(slave)
    return until_readable(master)


@state("PTY slave", "idle")
def _(own: Owner) -> int:
    return terminal(own)[1]


@state("PTY slave", "data")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    os.write(master, b"line\n")
    return until_readable(slave)


@state("PTY slave", "half a line")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    os.write(master, b"half")
    until_readable(master)  # the echo: what was written has arrived
    return slave


@state("PTY slave", "data and hang-up")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    tty.setraw(slave)
    os.write(master, b"x")
    until_readable(slave)
    own.close(master)
    return slave


@state("PTY slave", "hang-up")
def _(own: Owner) -> int:
    master, slave = terminal(own)
    own.close(master)
    return until_readable(slave)


# ---- files ----


def file(own: Owner, data: bytes, flags: int = os.O_RDWR, offset: int = 0) -> int:
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        fd = own(os.open(f.name, flags))
    os.lseek(fd, offset, os.SEEK_SET)
    return fd


@state("regular file", "data")
def _(own: Owner) -> int:
    return file(own, b"data")


@state("regular file", "at its end")
def _(own: Owner) -> int:
    return file(own, b"data", offset=4)


@state("regular file", "beyond its end")
def _(own: Owner) -> int:
    return file(own, b"data", offset=10)


@state("regular file", "empty")
def _(own: Owner) -> int:
    return file(own, b"")


@state("regular file", "read only")
def _(own: Owner) -> int:
    return file(own, b"data", os.O_RDONLY)


@state("regular file", "write only")
def _(own: Owner) -> int:
    return file(own, b"data", os.O_WRONLY)


@state("directory", "open")
def _(own: Owner) -> int:
    return own(os.open(tempfile.gettempdir(), os.O_RDONLY))


@state("null device", "open")
def _(own: Owner) -> int:
    return own(os.open(os.devnull, os.O_RDWR))


with contextlib.suppress(OSError):
    os.close(os.open("/dev/zero", os.O_RDWR))

    @state("zero device", "open")
    def _(own: Owner) -> int:
        return own(os.open("/dev/zero", os.O_RDWR))


# ---- eventfd ----

if sys.platform == "linux":

    @state("eventfd", "idle")
    def _(own: Owner) -> int:
        return own(os.eventfd(0))

    @state("eventfd", "data")
    def _(own: Owner) -> int:
        return own(os.eventfd(3))

    @state("eventfd", "full")
    def _(own: Owner) -> int:
        fd = own(os.eventfd(0))
        os.eventfd_write(fd, 2**64 - 2)
        return fd
