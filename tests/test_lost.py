"""Field cases of class LOST: output that was cut, and the end of a terminal."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable

import pytest
from states import reset, tcp, terminal
from support import LINUX, Owner, Task, lasts, prints_at_once, python, stretch

from fdwait import End, drain

Rounds = Callable[[int, int], int]
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 65535, 65536])
def test_b067_written_and_exited_before_the_drain(size: int, start: Start, place: Callable[[int], int]) -> None:
    process, out = start(prints_at_once(size), place)
    assert process.wait(20) == 0
    with lasts(0, 0.2):
        result = drain(out, process=process)
    assert (result.data, result.end) == (stretch(0, size), End.EOF)


def enlarged_pipe(own: Owner, size: int) -> tuple[int, int]:
    r, w = own.pipe()
    try:
        fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, size)
    except PermissionError:
        pytest.skip("the system does not allow a pipe of this size")
    return r, w


@pytest.mark.skipif(not LINUX, reason="only Linux has F_SETPIPE_SZ")
@pytest.mark.parametrize("size", [900 << 10, 1 << 20])
def test_b067_in_an_enlarged_pipe(size: int, own: Owner, place: Callable[[int], int]) -> None:
    r, w = enlarged_pipe(own, 1 << 20)
    r = place(r)
    with subprocess.Popen(prints_at_once(size), stdout=w) as process:
        own.close(w)
        assert process.wait(20) == 0
        result = drain(r, process=process)
    assert (result.data, result.end) == (stretch(0, size), End.EOF)


@pytest.mark.skipif(not LINUX, reason="only Linux has F_SETPIPE_SZ")
def test_b073_nothing_unread_is_lost_at_an_early_end(own: Owner) -> None:
    r, w = enlarged_pipe(own, 1 << 20)
    size = 900 << 10
    with subprocess.Popen(prints_at_once(size), stdout=w) as process:
        assert process.wait(20) == 0
    first = drain(r, timeout=0)
    assert first.end is End.TIMEOUT
    assert first.total > 0
    own.close(w)
    second = drain(r)
    assert first.data + second.data == stretch(0, size)


CHUNKS = [4096, 64 << 10, 2 << 20]  # a small read, and the sizes of the memory it is read into


@pytest.mark.parametrize("times", [1, 2, 17])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_b069_around_the_size_of_a_chunk(chunk: int, times: int, own: Owner, place: Callable[[int], int]) -> None:
    """Three sizes at once, each from its own writer into its own drain."""
    sizes = [chunk * times + more for more in (-1, 0, 1)]

    def write(w: int, size: int) -> None:
        data = stretch(0, size)
        at = 0
        while at < size:
            at += os.write(w, data[at : at + (1 << 20)])
        own.close(w)

    pipes = [own.pipe() for _ in sizes]
    drains = [Task(drain, place(r)) for r, _ in pipes]
    writers = [Task(write, w, size) for (_, w), size in zip(pipes, sizes, strict=True)]
    for writer in writers:
        writer.result()
    for task, size in zip(drains, sizes, strict=True):
        result = task.result()
        assert (result.total, result.end) == (size, End.EOF)
        assert hashlib.sha256(result.data).digest() == hashlib.sha256(stretch(0, size)).digest()


def test_b071_the_second_line_in_a_streams_buffer(own: Owner) -> None:
    code = "import os; os.write(1, b'one\\ntwo\\n'); os.read(0, 1)"
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        with lasts(0.2, 0.2):  # the child is silent, and alive
            result = drain(process.stdout, process=process, timeout=0.2)
        assert (result.data, result.end) == (b"two\n", End.TIMEOUT)
        process.stdin.close()


@pytest.mark.parametrize("first", [1, 2])
def test_b075_two_streams_closed_in_either_order(
    first: int, own: Owner, rounds: Rounds, place: Callable[[int], int]
) -> None:
    code = f"""
        import os
        for fd in ({first}, {3 - first}):
            left = 200_000
            while left:
                left -= os.write(fd, bytes([fd]) * left)
            os.close(fd)
        """
    for _ in range(rounds(3, 50)):
        (out, w1), (err, w2) = own.pipe(), own.pipe()
        out, err = place(out), place(err)
        with subprocess.Popen(python(code), stdout=w1, stderr=w2) as process:
            own.close(w1)
            own.close(w2)
            tasks = [Task(drain, out, process=process), Task(drain, err, process=process)]
            results = [task.result() for task in tasks]
        assert [result.data for result in results] == [b"\1" * 200_000, b"\2" * 200_000]
        assert [result.end for result in results] == [End.EOF, End.EOF]
        own.close(out)
        own.close(err)


# ---- the end of a terminal ----


def on_terminal(own: Owner, place: Callable[[int], int], command: str) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = terminal(own)
    master = place(master)
    process = subprocess.Popen(["sh", "-c", command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    own.close(slave)
    return process, master


def test_b083_the_end_of_a_terminal_is_eof_each_time(own: Owner, place: Callable[[int], int]) -> None:
    process, master = on_terminal(own, place, "printf hi")
    result = drain(master, process=process)
    assert (result.data, result.end) == (b"hi", End.EOF)
    for _ in range(3):
        result = drain(master, process=process)
        assert (result.data, result.end) == (b"", End.EOF)
    result = Task(drain, master).result()
    assert (result.data, result.end) == (b"", End.EOF)
    assert process.wait(10) == 0


@pytest.mark.skipif(not LINUX, reason="other kernels flush what is unread at the last close")
def test_b088_the_last_bytes_of_a_terminal_are_kept(own: Owner, place: Callable[[int], int]) -> None:
    process, master = on_terminal(own, place, "printf %0100d 7")
    assert process.wait(10) == 0
    result = drain(master, process=process)
    assert (result.data, result.end) == (b"0" * 99 + b"7", End.EOF)


def test_a_large_output_through_a_terminal(own: Owner, place: Callable[[int], int]) -> None:
    process, master = on_terminal(own, place, "stty raw; seq 1 100000")
    result = drain(master, process=process)
    assert result.data == b"".join(b"%d\n" % i for i in range(1, 100_001))
    assert result.end is End.EOF
    assert process.wait(10) == 0


@pytest.mark.skipif(not LINUX, reason="needs a file whose read is EIO: /proc/self/mem")
def test_b087_an_input_output_error_is_no_end(own: Owner, place: Callable[[int], int]) -> None:
    fd = place(own(os.open("/proc/self/mem", os.O_RDONLY)))
    with pytest.raises(OSError) as caught:
        drain(fd)
    assert caught.value.errno == errno.EIO
    assert caught.value.drained.end is None  # type: ignore[attr-defined]


def test_a_reset_connection_is_an_error_and_carries_what_came(own: Owner) -> None:

    a, b = tcp(own)
    os.write(b, b"some")
    first = drain(a, limit=4)
    reset(own, b)
    with pytest.raises(ConnectionResetError) as caught:
        drain(a)
    assert first.data == b"some"
    assert caught.value.drained.end is None  # type: ignore[attr-defined]
