"""feed(): what it takes, how it counts, and what it leaves as found. B117, B119."""

from __future__ import annotations

import array
import ctypes
import io
import mmap
import os
import pty
import signal
import socket
import subprocess
import tempfile
import termios
import tracemalloc
import tty
from collections.abc import Callable
from pathlib import Path

import pytest
from support import HasFileno, Owner, Task, let_it_sleep, nonblocking, python, stretch

import fdwait
from fdwait import Stop, drain, feed

Pipe = tuple[int, int]
Place = Callable[[int], int]

MIB = 1 << 20
LARGE = bytes(8 * MIB)  # more than anything here takes without a reader
KINDS = ["pipe", "fifo", "socketpair", "master", "slave"]

each_kind = pytest.mark.parametrize("kind", KINDS)
each_flag = pytest.mark.parametrize("flag", [False, True], ids=["blocking", "non-blocking"])


# ---- what is fed, and where it comes out ----


def open_fifo(own: Owner) -> Pipe:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fifo"
        os.mkfifo(path)
        r = own(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        os.set_blocking(r, True)
        return r, own(os.open(path, os.O_WRONLY))


def open_terminal(own: Owner) -> tuple[int, int]:
    master, slave = map(own, pty.openpty())
    tty.setraw(slave)
    return master, slave


def connect(kind: str, own: Owner) -> tuple[int, int]:
    """The descriptor to feed, and its peer to read from. A slave turns newlines into CR LF and leaves the rest."""
    if kind == "socketpair":
        a, b = socket.socketpair()
        return own(a.detach()), own(b.detach())
    if kind in ("pipe", "fifo"):
        r, w = own.pipe() if kind == "pipe" else open_fifo(own)
        return w, r
    master, slave = open_terminal(own)
    if kind == "master":
        return master, slave
    attributes = termios.tcgetattr(slave)
    attributes[1] = termios.OPOST | termios.ONLCR
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    return slave, master


def arrives(kind: str, data: bytes) -> bytes:
    """What comes out at the peer."""
    return data.replace(b"\n", b"\r\n") if kind == "slave" else data


def read_exactly(fd: int, size: int, piece: int = 1 << 16) -> bytes:
    """Waiting for each piece no longer than any machine should need."""
    pieces = []
    while size:
        assert fdwait.wait_readable(fd, 10), f"{size} bytes are missing"
        pieces.append(os.read(fd, min(piece, size)))
        assert pieces[-1], f"it ended {size} bytes early"
        size -= len(pieces[-1])
    return b"".join(pieces)


def check_taken(kind: str, fd: int, peer: int, data: bytes) -> None:
    """The peer gets this and not a byte more: what is written now follows it at once."""
    expected = arrives(kind, data)
    assert read_exactly(peer, len(expected)) == expected
    os.write(fd, b"!")
    assert read_exactly(peer, 1) == b"!"


# ---- data ----


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b",
        bytearray(b"a\0b"),
        memoryview(b"xa\0bx")[1:4],
        memoryview(bytearray(b"a\0b")),
        memoryview(b"a\0b").cast("c"),
        array.array("b", b"a\0b"),
        (ctypes.c_char * 3)(*b"a\0b"),
        "a\0b",
    ],
    ids=lambda data: type(data).__name__,
)
def test_any_contiguous_buffer(data: bytes, pipe: Pipe) -> None:
    assert feed(pipe[1], data) == 3
    check_taken("pipe", pipe[1], pipe[0], b"a\0b")


def test_items_of_several_bytes(pipe: Pipe) -> None:
    items = array.array("I", range(1000))
    assert feed(pipe[1], items) == 1000 * items.itemsize
    check_taken("pipe", pipe[1], pipe[0], items.tobytes())
    table = memoryview(bytes(range(24))).cast("B", (2, 3, 4))
    assert feed(pipe[1], table) == 24
    check_taken("pipe", pipe[1], pipe[0], bytes(range(24)))


def test_a_mapped_file(pipe: Pipe) -> None:
    with open(__file__, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        reader = Task(read_exactly, pipe[0], len(mapped))
        assert feed(pipe[1], mapped) == len(mapped)
        assert reader.result() == f.read()


@pytest.mark.parametrize("empty", [b"", "", bytearray(), memoryview(b""), array.array("I")])
def test_nothing(empty: bytes, pipe: Pipe) -> None:
    assert feed(pipe[1], empty) == 0
    assert feed(pipe[1], empty, timeout=0) == 0
    check_taken("pipe", pipe[1], pipe[0], b"")


def test_text_is_utf8_with_surrogateescape(pipe: Pipe) -> None:
    text = "aé€😀\n\r\n\0\udc80\udcff"
    raw = "aé€😀\n\r\n\0".encode() + b"\x80\xff"
    assert feed(pipe[1], text) == len(raw)
    check_taken("pipe", pipe[1], pipe[0], raw)


@pytest.mark.parametrize("bad", ["\ud800", "a" * 100_000 + "\udc00"])
def test_other_surrogates_are_refused_before_the_first_byte(bad: str, pipe: Pipe) -> None:
    with pytest.raises(UnicodeEncodeError):
        feed(pipe[1], bad)
    check_taken("pipe", pipe[1], pipe[0], b"")


@pytest.mark.parametrize("bad", [memoryview(b"abcd")[::2], memoryview(b"abcd")[::-1]], ids=["gaps", "backwards"])
def test_what_is_not_contiguous(bad: memoryview, pipe: Pipe) -> None:
    with pytest.raises(TypeError, match="contiguous"):
        feed(pipe[1], bad)
    check_taken("pipe", pipe[1], pipe[0], b"")


@pytest.mark.parametrize("bad", [None, 5, [1, 2], io.BytesIO(b"x"), iter([b"x"])], ids=lambda bad: type(bad).__name__)
def test_what_is_no_buffer(bad: bytes, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        feed(pipe[1], bad)
    check_taken("pipe", pipe[1], pipe[0], b"")


def test_buffers_are_not_copied(own: Owner) -> None:
    null = own(os.open(os.devnull, os.O_WRONLY))
    data = bytearray(32 * MIB)
    tracemalloc.start()
    try:
        for progress in (None, lambda _: None):
            feed(null, data, progress=progress)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_the_buffer_is_the_callers_and_not_changed(pipe: Pipe) -> None:
    data = bytearray(stretch(0, 1000))
    feed(pipe[1], data)
    assert data == stretch(0, 1000)
    data.append(0)  # not held any more


# ---- descriptors ----


def test_an_object_with_a_fileno(pipe: Pipe) -> None:
    assert feed(HasFileno(pipe[1]), b"abc") == 3
    with os.fdopen(pipe[1], "wb", closefd=False) as stream:
        assert feed(stream, b"def") == 3
        assert not stream.closed
    check_taken("pipe", pipe[1], pipe[0], b"abcdef")


def test_a_socket_object(own: Owner) -> None:
    a, b = socket.socketpair()
    with a, b:
        assert feed(a, b"abc") == 3
        assert b.recv(10) == b"abc"


@pytest.mark.parametrize("bad", [-1, -(2**31), HasFileno(-1)])
def test_a_negative_descriptor(bad: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        feed(bad, b"x")


@pytest.mark.parametrize("bad", [None, "1", 1.0, object(), HasFileno("1"), HasFileno(None)])
def test_what_is_no_descriptor(bad: int) -> None:
    with pytest.raises(TypeError):
        feed(bad, b"x")


@each_kind
@each_flag
def test_b117_every_way_out_leaves_the_descriptor_as_found(kind: str, flag: bool, own: Owner) -> None:
    """Open, the same file, and O_NONBLOCK as it was, also for a duplicate and in the middle of the call."""
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd = own.up(fd)
    other = own.dup(fd)

    def unchanged(*_: object) -> None:
        assert nonblocking(fd) is nonblocking(other) is flag
        assert os.path.sameopenfile(fd, other)

    def interrupt(*_: object) -> None:
        unchanged()
        raise KeyboardInterrupt

    feed(fd, b"x", progress=unchanged)
    unchanged()
    with pytest.raises(KeyboardInterrupt):
        feed(fd, b"x", progress=interrupt)
    unchanged()
    with pytest.raises(TimeoutError):
        feed(fd, LARGE, timeout=0.001)
    unchanged()
    stop = Stop()
    feeding = Task(feed, fd, LARGE, stop=stop)
    let_it_sleep()
    unchanged()
    stop.set()
    feeding.result()
    unchanged()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        sender = Task(os.kill, os.getpid(), signal.SIGUSR1, delay=0.05)
        with pytest.raises(KeyboardInterrupt):
            feed(fd, LARGE)
        sender.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    unchanged()
    own.close(peer)
    with pytest.raises(OSError):  # EPIPE, EIO; a master goes on waiting, since its slave can be opened again
        feed(fd, LARGE, timeout=0.1)
    unchanged()


def test_b117_the_terminal_that_a_command_shares_with_us(own: Owner) -> None:
    """Standard input, output and error of a child are one open file, which we feed meanwhile."""
    master, slave = open_terminal(own)
    code = """
        import fcntl, os
        flags = [bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) for fd in (0, 1, 2)]
        os.write(1, b"ready")
        os.read(0, 1)
        flags += [bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) for fd in (0, 1, 2)]
        print(flags)
        """
    with subprocess.Popen(python(code), stdin=slave, stdout=slave, stderr=slave) as process:
        assert read_exactly(master, 5) == b"ready"
        with pytest.raises(TimeoutError) as late:
            feed(slave, LARGE, timeout=0.1)  # we and the child, both at the slave
        read_exactly(master, late.value.taken)  # type: ignore[attr-defined]
        os.write(master, b"x")
        own.close(slave)
        result = drain(master, process=process)
    assert result.data.strip() == repr([False] * 6).encode()


FLIPS = """
    import os
    print(flush=True)
    while True:
        os.set_blocking(0, False)
        os.set_blocking(0, True)
    """


@each_kind
def test_b119_flipped_in_mid_stream_by_another_process(kind: str, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    fd = place(fd)
    data = stretch(0, 20_000_003 if kind in ("pipe", "fifo", "socketpair") else 300_007)
    with subprocess.Popen(python(FLIPS), stdin=fd, stdout=subprocess.PIPE) as flipper:
        assert flipper.stdout is not None
        flipper.stdout.readline()
        reader = Task(read_exactly, peer, len(arrives(kind, data)))
        taken = feed(fd, data, timeout=30)
        received = reader.result()
        flipper.kill()
    assert taken == len(data)
    assert received == arrives(kind, data)


# ---- progress ----


@pytest.mark.parametrize(
    ("size", "options", "counts"),
    [
        (0, {}, [0]),
        (1, {}, [1]),
        (MIB, {}, [MIB]),
        (MIB + 1, {}, [MIB, MIB + 1]),
        (2 * MIB, {}, [MIB, 2 * MIB]),
        (10, {"block": 3}, [3, 6, 9, 10]),
        (3, {"block": 1}, [1, 2, 3]),
        (3, {"block": True}, [1, 2, 3]),
        (300_000, {"block": 100_000}, [100_000, 200_000, 300_000]),
        (5, {"block": 10**30}, [5]),
    ],
)
def test_progress_is_told_after_each_block_and_at_the_end(
    size: int, options: dict[str, int], counts: list[int], pipe: Pipe
) -> None:
    seen: list[int] = []
    data = stretch(0, size)
    reader = Task(read_exactly, pipe[0], size)
    assert feed(pipe[1], data, progress=seen.append, **options) == size
    assert seen == counts
    assert reader.result() == data


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit, TimeoutError])
def test_an_exception_from_progress_has_the_count(error: type[BaseException], pipe: Pipe) -> None:
    def progress(taken: int) -> None:
        if taken == 200:
            raise error("from progress")

    with pytest.raises(error, match="from progress") as caught:
        feed(pipe[1], stretch(0, 1000), block=100, progress=progress)
    assert caught.value.taken == 200  # type: ignore[attr-defined]
    check_taken("pipe", pipe[1], pipe[0], stretch(0, 200))


def test_progress_may_stop_the_call(pipe: Pipe) -> None:
    stop = Stop()
    seen: list[int] = []

    def progress(taken: int) -> None:
        seen.append(taken)
        stop.set()

    assert feed(pipe[1], bytes(1000), block=100, progress=progress, stop=stop) == 100
    assert seen[0] == seen[-1] == 100
    check_taken("pipe", pipe[1], pipe[0], bytes(100))


def test_progress_may_feed(own: Owner) -> None:
    (r, w), (inner_r, inner_w) = own.pipe(), own.pipe()
    assert feed(w, bytes(5), block=1, progress=lambda taken: feed(inner_w, b"%d" % taken)) == 5
    check_taken("pipe", inner_w, inner_r, b"12345")
    check_taken("pipe", w, r, bytes(5))


@pytest.mark.parametrize("block", [0, -1, -(10**30)])
def test_a_block_of_nothing(block: int, pipe: Pipe) -> None:
    with pytest.raises(ValueError, match="block"):
        feed(pipe[1], b"x", block=block)
    check_taken("pipe", pipe[1], pipe[0], b"")


@pytest.mark.parametrize("block", [None, "1", 1.5, 1.0, b"1"])
def test_a_block_of_another_type(block: int, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        feed(pipe[1], b"x", block=block)
    check_taken("pipe", pipe[1], pipe[0], b"")


@pytest.mark.parametrize("stop", [True, object(), "stop"])
def test_a_stop_of_another_type(stop: Stop, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        feed(pipe[1], b"x", stop=stop)
    check_taken("pipe", pipe[1], pipe[0], b"")


def test_options_are_keywords(pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        feed(pipe[1], b"x", 1.0)  # type: ignore[misc]
    check_taken("pipe", pipe[1], pipe[0], b"")
