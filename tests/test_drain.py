"""drain(): its six ends, its limits, and that not a byte goes missing."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import pty
import socket
import subprocess
import sys
import tempfile
import tty
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Owner, Task, fill, lasts, prints_pattern, python, run_program, stretch

from fdwait import Drained, End, Stop, Window, drain

Pipe = tuple[int, int]
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


def check(result: Drained, data: bytes, end: End) -> None:
    """The result of a drain that kept everything."""
    assert result.data == data
    assert result.end is end
    assert (result.total, result.kept, result.elided) == (len(data), len(data), 0)


# ---- EOF ----


def test_eof(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"all of it")
    own.close(w)
    check(drain(r), b"all of it", End.EOF)
    check(drain(r), b"", End.EOF)  # an end stays an end


def test_eof_arrives_while_draining(pipe: Pipe, own: Owner) -> None:
    r, w = pipe

    def write() -> None:
        for i in range(20):
            os.write(w, b"%d\n" % i)
        own.close(w)

    with lasts(0.09, 0.5):
        writer = Task(write, delay=0.1)
        check(drain(r), b"".join(b"%d\n" % i for i in range(20)), End.EOF)
    writer.result()


def test_output_and_status_of_a_command(start: Start, place: Callable[[int], int]) -> None:
    process, out = start("echo out; exit 7", place)
    check(drain(out, process=process), b"out\n", End.EOF)
    assert process.wait(10) == 7  # left for its Popen to reap


@pytest.mark.parametrize("size", [1, 2**16 - 1, 2**16, 2**16 + 1, 2**21, 2**21 + 1, 100_000_007])
def test_a_large_output(size: int, start: Start, place: Callable[[int], int]) -> None:
    process, out = start(prints_pattern(size), place)
    result = drain(out, process=process)
    assert result.total == len(result.data) == size
    assert result.data == stretch(0, size)
    assert result.end is End.EOF


@pytest.mark.parametrize("connect", ["socketpair", "pty"])
def test_other_kinds_of_sources(connect: str, own: Owner, place: Callable[[int], int]) -> None:
    if connect == "socketpair":
        a, b = socket.socketpair()
        source, peer = own(a.detach()), own(b.detach())
    else:
        source, peer = map(own, pty.openpty())
        tty.setraw(peer)
    source = place(source)
    data = stretch(0, 1_000_000)

    def write() -> None:
        sent = 0
        while sent < len(data):
            sent += os.write(peer, data[sent : sent + 10_000])
        own.close(peer)

    writer = Task(write)
    check(drain(source), data, End.EOF)
    writer.result()


def test_a_regular_file_is_read_to_its_end(own: Owner, place: Callable[[int], int]) -> None:
    fd = place(own(os.open(__file__, os.O_RDONLY)))
    with open(__file__, "rb") as f:
        check(drain(fd), f.read(), End.EOF)


def test_the_null_device_is_empty(own: Owner, place: Callable[[int], int]) -> None:
    check(drain(place(own(os.open(os.devnull, os.O_RDONLY)))), b"", End.EOF)


# ---- EXITED and EXITED_BUSY: somebody else still holds the pipe ----


def exited(start: Start) -> subprocess.Popen[bytes]:
    process, _ = start("exit 0")
    process.wait()
    return process


def test_exited(high_pipe: Pipe, start: Start) -> None:
    r, w = high_pipe
    os.write(w, b"out")
    with lasts(0.3, 0.3):
        check(drain(r, process=exited(start)), b"out", End.EXITED)


def test_exited_counts_from_the_exit(high_pipe: Pipe, start: Start) -> None:
    r, _ = high_pipe
    with lasts(0.6, 0.4):
        process, _ = start("sleep 0.4")
        check(drain(r, process=process, linger=0.2), b"", End.EXITED)
    assert process.wait(10) == 0


def test_a_zombie_is_an_exit_and_stays_one(high_pipe: Pipe, start: Start) -> None:
    process, out = start("exit 3")
    drain(out)  # the end of its output: it is exiting, and nobody has reaped it
    with lasts(0.2, 0.3):
        check(drain(high_pipe[0], process=process, linger=0.2), b"", End.EXITED)
    assert process.wait(10) == 3


def test_each_chunk_starts_linger_again(high_pipe: Pipe, start: Start) -> None:
    r, w = high_pipe

    def write() -> None:
        for i in range(5):
            Task(os.write, w, b"%d" % i, delay=0.2).result()

    process = exited(start)
    writer = Task(write)
    with lasts(1.3, 0.6):
        check(drain(r, process=process, linger=0.4), b"01234", End.EXITED)
    writer.result()


def test_linger_of_zero_is_a_last_look(high_pipe: Pipe, start: Start) -> None:
    r, w = high_pipe
    os.write(w, b"out")
    with lasts(0, 0.15):
        check(drain(r, process=exited(start), linger=0), b"out", End.EXITED)


def test_exited_busy(high_pipe: Pipe, start: Start) -> None:
    r, w = high_pipe
    stop = Stop()

    def write() -> int:
        written = 0
        while not stop.is_set():
            Task(os.write, w, b"tick", delay=0.05).result()
            written += 4
        return written

    process = exited(start)
    writer = Task(write)
    with lasts(1, 0.3):
        first = drain(r, process=process, linger=0.3, linger_cap=1)
    assert first.end is End.EXITED_BUSY
    stop.set()
    written = writer.result()
    rest = drain(r, timeout=0)
    assert first.data + rest.data == b"tick" * (written // 4)


def test_eof_wins_over_exited(start: Start, place: Callable[[int], int]) -> None:
    process, out = start("echo out", place)
    process.wait()
    with lasts(0, 0.2):  # no linger: every writer is gone
        check(drain(out, process=process, linger=5), b"out\n", End.EOF)


@pytest.mark.parametrize("name", ["linger", "linger_cap"])
def test_bad_linger(name: str, high_pipe: Pipe, start: Start) -> None:
    process = exited(start)
    with pytest.raises(ValueError):
        drain(high_pipe[0], process=process, **{name: float("nan")})
    with pytest.raises(TypeError):
        drain(high_pipe[0], process=process, **{name: "1"})


# ---- TIMEOUT ----


def test_timeout(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"some")
    with lasts(0.2, 0.15):
        check(drain(r, timeout=0.2), b"some", End.TIMEOUT)


@pytest.mark.parametrize("timeout", [0, -1, -0.0, -1e300, float("-inf")])
def test_a_spent_deadline_still_takes_what_is_there(timeout: float, pipe: Pipe) -> None:
    r, w = pipe
    size = fill(w)
    with lasts(0, 0.1):
        check(drain(r, timeout=timeout), b"f" * size, End.TIMEOUT)
        check(drain(r, timeout=timeout), b"", End.TIMEOUT)


def test_an_end_wins_over_a_spent_deadline(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"all")
    own.close(w)
    check(drain(r, timeout=0), b"all", End.EOF)


def test_an_endless_stream_does_not_outrun_a_spent_deadline(start: Start) -> None:
    process, out = start(prints_pattern())
    drain(out, limit=1)  # it runs
    with lasts(0, 0.2):
        result = drain(out, timeout=0)
    assert result.end is End.TIMEOUT
    assert result.total <= 2**20  # about one pipe's worth
    assert result.data == stretch(1, result.total)
    assert process.poll() is None


# ---- LIMIT ----


@pytest.mark.parametrize("limit", [0, 1, 99])
def test_limit(limit: int, pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    data = stretch(0, 100)
    os.write(w, data)
    own.close(w)
    first = drain(r, limit=limit)
    check(first, data[:limit], End.LIMIT)
    assert first.left == 100 - limit
    check(drain(r), data[limit:], End.EOF)


def test_exactly_limit_bytes_are_the_limit(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"x" * 100)
    own.close(w)
    first = drain(r, limit=100)
    check(first, b"x" * 100, End.LIMIT)  # the end was not seen
    assert first.left == 0
    check(drain(r, limit=100), b"", End.EOF)


def test_more_room_than_data(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"x" * 100)
    own.close(w)
    check(drain(r, limit=101), b"x" * 100, End.EOF)


def test_limits_cut_a_stream_into_exact_pieces(start: Start, place: Callable[[int], int]) -> None:
    sizes = [1, 4096, 65535, 65536, 65537, 2**20, 3 * 2**20 + 1]
    _, out = start(prints_pattern(), place)
    at = 0
    for size in sizes:
        check(drain(out, limit=size), stretch(at, size), End.LIMIT)
        at += size


def test_bad_limits(pipe: Pipe) -> None:
    with pytest.raises(ValueError, match="limit"):
        drain(pipe[0], limit=-1)
    for bad in ("1", 1.5):
        with pytest.raises(TypeError):
            drain(pipe[0], limit=bad)  # type: ignore[arg-type]


# ---- left ----


def test_left_counts_what_is_still_in_the_pipe(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"x" * 1000)
    assert drain(r, limit=300).left == 700
    assert drain(r, limit=600).left == 100
    assert drain(r, timeout=0).left == 0


# ---- buffered and other streams ----


@pytest.mark.parametrize("buffering", [0, 2, 16, 8192])
def test_a_streams_own_buffer_comes_first(buffering: int, pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"one\ntwo\nthree\n")
    own.close(w)
    with os.fdopen(r, "rb", buffering=buffering, closefd=False) as stream:
        assert stream.readline() == b"one\n"
        check(drain(stream), b"two\nthree\n", End.EOF)
        assert stream.read() == b""


def test_emptying_a_buffer_does_not_block(pipe: Pipe) -> None:
    r, w = pipe
    with os.fdopen(r, "rb", closefd=False) as stream:
        with lasts(0.1, 0.2):
            check(drain(stream, timeout=0.1), b"", End.TIMEOUT)
        os.write(w, b"one\ntwo\n")
        assert stream.readline() == b"one\n"
        with lasts(0.1, 0.2):
            check(drain(stream, timeout=0.1), b"two\n", End.TIMEOUT)
        os.write(w, b"three\n")
        assert stream.readline() == b"three\n"  # the stream works as before


def test_a_limit_within_a_streams_buffer(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"one\ntwo\nthree\n")
    own.close(w)
    with os.fdopen(r, "rb", closefd=False) as stream:
        assert stream.readline() == b"one\n"
        check(drain(stream, limit=2), b"tw", End.LIMIT)
        check(drain(stream, limit=3), b"o\nt", End.LIMIT)
        check(drain(stream), b"hree\n", End.EOF)


def test_a_buffer_larger_than_any_chunk(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    data = stretch(0, 3_000_000)

    def write() -> None:
        with contextlib.closing(os.fdopen(w, "wb", closefd=False)) as f:
            f.write(data)
        own.close(w)

    writer = Task(write)
    with os.fdopen(r, "rb", buffering=2_000_000, closefd=False) as stream:
        head = stream.read(10)
        assert head + drain(stream).data == data
    writer.result()


def test_the_stdout_of_a_popen() -> None:
    command = python("print('one\\ntwo', flush=True); input(); print('three')")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        check(drain(process.stdout, process=process), b"two\nthree\n", End.EOF)


def test_a_text_stream_is_refused_by_name_of_its_buffer(pipe: Pipe) -> None:
    with (
        os.fdopen(pipe[0], closefd=False) as stream,
        pytest.raises(TypeError, match=r"\.buffer") as caught,
    ):
        drain(stream)
    assert not hasattr(caught.value, "drained")


def test_a_stream_survives_its_drain(pipe: Pipe) -> None:
    r, w = pipe
    with os.fdopen(r, "rb", closefd=False) as stream:
        os.write(w, b"abc")
        drain(stream, timeout=0)
        assert not stream.closed
        os.write(w, b"def\n")
        assert stream.readline() == b"def\n"


# ---- Window ----


@pytest.mark.parametrize("method", ["at once", "in pieces"])
@pytest.mark.parametrize(("head", "tail"), [(0, 0), (0, 10), (10, 0), (10, 10), (1, 65536), (65536, 1), (100_000, 3)])
def test_window(head: int, tail: int, method: str, pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    data = b"".join(b"%07d\n" % i for i in range(40_000))

    def write() -> None:
        step = len(data) if method == "at once" else 4999
        for i in range(0, len(data), step):
            piece = data[i : i + step]
            while piece:
                piece = piece[os.write(w, piece) :]
        own.close(w)

    writer = Task(write)
    result = drain(r, keep=Window(head, tail))
    writer.result()
    assert result.end is End.EOF
    assert (result.total, result.kept) == (len(data), head + tail)
    assert result.kept + result.elided == result.total
    assert result.data.startswith(data[:head])
    assert result.data.endswith(data[len(data) - tail :])
    assert len(result.data) > head + tail  # the marker
    marker = result.data[head : len(result.data) - tail].decode()
    assert str(result.elided) in marker


@pytest.mark.parametrize("spare", [0, 1, 1000])
def test_a_window_with_room_leaves_nothing_out(spare: int, pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"0123456789")
    own.close(w)
    check(drain(r, keep=Window(3, 7 + spare)), b"0123456789", End.EOF)


def test_one_byte_too_many_for_a_window(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    os.write(w, b"0123456789")
    own.close(w)
    result = drain(r, keep=Window(3, 6))
    assert (result.total, result.kept, result.elided) == (10, 9, 1)
    assert result.data.startswith(b"012")
    assert result.data.endswith(b"456789")


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_a_window_splits_no_character(character: str, shift: int, pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    text = "a" * shift + character * 500 + "a" * shift
    data = text.encode()
    os.write(w, data)
    own.close(w)
    for_head, for_tail = 50, 50
    result = drain(r, keep=Window(for_head, for_tail))
    shown = result.data.decode()  # strict: a split character would raise
    head, tail = shown.split("⟪")[0], shown.split("⟫")[-1]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert for_head - 3 <= len(head.encode()) <= for_head
    assert for_tail - 3 <= len(tail.encode()) <= for_tail
    assert result.kept == len(head.encode()) + len(tail.encode())
    assert result.kept + result.elided == result.total == len(data)


def test_a_window_on_bytes_that_are_no_text(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    data = b"\x80\xbf\xff" * 1000
    os.write(w, data)
    own.close(w)
    result = drain(r, keep=Window(100, 100))
    assert 200 - 6 <= result.kept <= 200
    assert result.kept + result.elided == result.total == 3000


def test_a_window_over_a_large_output(start: Start, place: Callable[[int], int]) -> None:
    size = 100_000_007
    process, out = start(prints_pattern(size), place)
    result = drain(out, process=process, keep=Window(1000, 300_000))
    assert result.end is End.EOF
    assert result.total == size
    assert result.kept + result.elided == size
    assert result.data.startswith(stretch(0, 997))
    assert result.data.endswith(stretch(size - 299_997, 299_997))


def test_a_window_at_every_early_end(start: Start) -> None:
    keep = Window(100, 100)
    _, out = start(prints_pattern())
    at = 0
    for end, options in [
        (End.LIMIT, {"limit": 1_000_000}),
        (End.TIMEOUT, {"timeout": 0.1}),
        (End.LIMIT, {"limit": 150}),
    ]:
        result = drain(out, keep=keep, **options)
        assert result.end is end
        assert result.kept + result.elided == result.total
        assert result.data.startswith(stretch(at, min(result.total, 97)))
        at += result.total
    # Nothing of the stream was lost between the calls.
    assert drain(out, limit=1000).data == stretch(at, 1000)


@pytest.mark.parametrize(("head", "tail"), [(-1, 0), (0, -1)])
def test_bad_windows(head: int, tail: int) -> None:
    with pytest.raises(ValueError):
        Window(head, tail)


def test_both_parts_of_a_window_are_required() -> None:
    with pytest.raises(TypeError):
        Window()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Window(1)  # type: ignore[call-arg]
    window = Window(head=1, tail=2)
    assert (window.head, window.tail) == (1, 2)


# ---- errors ----


def test_an_error_is_not_an_end(own: Owner, place: Callable[[int], int]) -> None:
    directory = place(own(os.open(os.curdir, os.O_RDONLY)))
    with pytest.raises(IsADirectoryError) as caught:
        drain(directory)
    check_drained(caught.value, b"")


def check_drained(error: BaseException, data: bytes) -> None:
    """What an error out of drain() carries."""
    assert error.drained.data == data  # type: ignore[attr-defined]
    assert error.drained.end is None  # type: ignore[attr-defined]


def test_a_closed_descriptor(own: Owner, place: Callable[[int], int]) -> None:
    r, _ = own.pipe()
    r = place(r)
    own.close(r)
    with pytest.raises(OSError) as caught:
        drain(r)
    assert caught.value.errno == errno.EBADF


def test_a_descriptor_that_is_for_writing_only(pipe: Pipe) -> None:
    with lasts(0, 0.3), pytest.raises(OSError) as caught:
        drain(pipe[1], timeout=5)
    assert caught.value.errno == errno.EBADF


def test_argument_errors_carry_nothing(pipe: Pipe) -> None:
    for bad in ({"timeout": float("nan")}, {"limit": -1}):
        with pytest.raises(ValueError) as caught:
            drain(pipe[0], **bad)
        assert not hasattr(caught.value, "drained")
    for bad in ({"timeout": "1"}, {"keep": 5}, {"stop": 1}, {"process": "x"}):
        with pytest.raises(TypeError) as refused:
            drain(pipe[0], **bad)
        assert not hasattr(refused.value, "drained")


def test_an_argument_error_takes_nothing(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"one\ntwo\n")
    with os.fdopen(r, "rb", closefd=False) as stream:
        stream.readline()
        with pytest.raises(ValueError):
            drain(stream, timeout=float("nan"))
        check(drain(stream, timeout=0), b"two\n", End.TIMEOUT)


# ---- in general ----


def test_two_streams_of_one_command(own: Owner, place: Callable[[int], int]) -> None:
    """Each read by its own thread: no stream waits for the other."""
    (out, w1), (err, w2) = own.pipe(), own.pipe()
    out, err = place(out), place(err)
    code = """
        import os, random
        pattern = random.Random(1).randbytes(65521)
        for i in range(100):
            os.write(1, pattern)
            os.write(2, pattern[::-1])
        """
    with subprocess.Popen(python(code), stdout=w1, stderr=w2) as process:
        own.close(w1)
        own.close(w2)
        tasks = [Task(drain, fd, process=process) for fd in (out, err)]
        results = [task.result() for task in tasks]
    pattern = stretch(0, 65521)
    expected = [pattern * 100, pattern[::-1] * 100]
    digests = [hashlib.sha256(result.data).digest() for result in results]
    assert digests == [hashlib.sha256(data).digest() for data in expected]
    assert [result.end for result in results] == [End.EOF] * 2


def test_the_six_ends() -> None:
    names = {"EOF", "EXITED", "EXITED_BUSY", "TIMEOUT", "LIMIT", "STOPPED"}
    assert {end.name for end in End} == names


def test_the_result_shows_its_end(pipe: Pipe) -> None:
    assert "TIMEOUT" in repr(drain(pipe[0], timeout=0))


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_what_keeps_packets_apart_is_no_stream(kind: int, own: Owner) -> None:
    try:
        a, b = socket.socketpair(socket.AF_UNIX, kind)
    except OSError as exc:
        pytest.skip(f"no such sockets here: {exc}")
    with a, b:
        a.send(b"x" * 100)
        with pytest.raises(OSError, match="packets") as caught:
            drain(b)
        assert caught.value.errno == errno.EPROTOTYPE
        assert len(b.recv(1000)) == 100


@pytest.mark.parametrize("other", [b"", b"OTHER"], ids=["at its end", "with data"])
def test_a_number_that_another_file_took_is_an_error(other: bytes, own: Owner) -> None:
    r, w = own.pipe()
    other_r, other_w = own.pipe()
    os.write(w, b"ours")
    os.write(other_w, other)
    own.close(other_w)
    task = Task(os.dup2, other_r, r, delay=0.2)
    with pytest.raises(OSError, match="belongs to another file") as caught:
        drain(r, timeout=10)
    task.result()
    assert caught.value.errno == errno.EBADF
    assert caught.value.drained.data == b"ours"


def test_the_left_counts_what_stayed_in_the_streams_buffer(own: Owner) -> None:
    r, w = own.pipe()
    os.write(w, b"x" * 1000)
    with os.fdopen(os.dup(r), "rb") as stream:
        stream.read(1)
        result = drain(stream, limit=10)
        assert (result.data, result.left) == (b"x" * 10, 989)
        own.close(w)
        assert drain(stream).data == b"x" * 989


def test_a_stream_that_changes_what_it_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"hello"))
    with gzip.open(path) as stream, pytest.raises(TypeError):
        drain(stream)
    with io.BufferedReader(gzip.open(path)) as stream, pytest.raises(TypeError):  # type: ignore[arg-type]
        drain(stream)
    with tempfile.SpooledTemporaryFile(max_size=5) as spooled, pytest.raises(TypeError):
        drain(spooled)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is counted by /proc/self/statm")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer needs more address space than the limit leaves")
def test_no_memory_for_the_result_is_said_and_counted() -> None:
    done = run_program(
        """
        import resource, fdwait
        size = 200 << 20
        with open("/dev/zero", "rb", buffering=0) as zero:
            import mmap
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used + size + (64 << 20), hard))
            try:
                fdwait.drain(zero, limit=size)
            except MemoryError as exc:
                print(exc.drained.total, exc.drained.elided, exc.drained.end)
        """
    )
    assert done.split() == [str(200 << 20), str(200 << 20), "None"]
