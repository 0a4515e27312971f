"""Field cases of class FDSETSIZE: the range limit of select(), and what was made of its error."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Owner, Task, lasts, stretch

import fdwait
from fdwait import End, FdWaiter, drain

Rounds = Callable[[int, int], int]
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


@pytest.mark.usefixtures("held")
def test_b001_all_of_the_output_and_the_status(start: Start, tmp_path: Path, rounds: Rounds, own: Owner) -> None:
    data = b"hello\n" + stretch(0, 5092)
    (tmp_path / "data").write_bytes(data)
    for _ in range(rounds(25, 100)):
        process, out = start(f"cat '{tmp_path}/data'; exit 7")
        assert out > 1023
        result = drain(out, process=process)
        assert (result.data, result.end) == (data, End.EOF)
        assert process.wait(10) == 7
        own.close(out)


@pytest.mark.usefixtures("held")
def test_b001_a_failed_wait_is_an_error_not_an_end(own: Owner) -> None:
    r, _ = own.pipe()
    assert r > 1023
    own.close(r)
    for call in drain, FdWaiter, fdwait.wait_readable:
        with pytest.raises(OSError) as caught:
            call(r)
        assert caught.value.errno == errno.EBADF
    with pytest.raises(OSError) as caught:
        fdwait.select([r], [], [])
    assert caught.value.errno == errno.EBADF


@pytest.mark.usefixtures("held")
def test_b005_a_loop_that_asks_with_timeout_0_and_then_reads(own: Owner) -> None:
    r, w = own.pipe()
    os.write(w, b"x\r")
    seen = b""
    with lasts(0, 1):
        while not seen.endswith(b"\r"):
            if fdwait.select([r], [], [], 0)[0]:
                seen += os.read(r, 1)
    with lasts(0, 1), pytest.raises(ValueError):
        fdwait.select([-1], [], [], 0)


@pytest.mark.usefixtures("held")
def test_b007_five_wake_ups_and_then_the_wake_pipe(own: Owner) -> None:
    (r, w), (wake_r, wake_w), (ack_r, ack_w) = own.pipe(), own.pipe(), own.pipe()

    def loop() -> int:
        count = 0
        while True:
            ready, _, _ = fdwait.select([r, wake_r], [], [])
            if wake_r in ready:
                return count
            os.read(r, 1)
            count += 1
            os.write(ack_w, b"a")

    thread = Task(loop)
    for _ in range(5):
        os.write(w, b"x")
        assert os.read(ack_r, 1) == b"a"
    assert thread.is_alive()
    os.write(wake_w, b"w")
    assert thread.result() == 5
