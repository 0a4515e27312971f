"""Field cases of class EPERM: files that epoll and kqueue refuse, and select() calls always ready."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from states import file
from support import Owner, descriptors, lasts, program

import fdwait
from fdwait import READ, WRITE, FdWaiter

FILES: dict[str, Callable[[Owner], int]] = {
    "a file": lambda own: file(own, b"data"),
    "an empty file": lambda own: file(own, b""),
    "a file at its end": lambda own: file(own, b"data", offset=4),
    "a directory": lambda own: own(os.open(os.curdir, os.O_RDONLY)),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_b032_ready_at_once_as_for_select(
    make: Callable[[Owner], int], own: Owner, place: Callable[[int], int]
) -> None:
    fd = make(own)
    assert select.select([fd], [fd], [], 0) == ([fd], [fd], [])
    fd = place(fd)
    before = descriptors()
    for timeout in 0, 5, None:
        with lasts(0, 0.1):
            assert fdwait.select([fd], [fd], [], timeout) == ([fd], [fd], [])
            assert fdwait.wait_readable(fd, timeout) is True
            assert fdwait.wait_writable(fd, timeout) is True
            for events in READ, WRITE, READ | WRITE:
                with FdWaiter(fd, events) as waiter:
                    assert waiter.wait(timeout) is True
    assert descriptors() == before


PROGRAM = """
    import os, select, subprocess
    import fdwait
    from support import *
    ready = fdwait.select([0], [1, 2], [], 5)
    assert ready == ([0], [1, 2], []), ready
    assert fdwait.wait_readable(0, 5) and fdwait.wait_writable(1, 5)
    r, w = os.pipe()
    process = subprocess.Popen(["cat"], stdout=w)  # reads our own standard input
    os.close(w)
    result = fdwait.drain(r, process=process)
    assert (result.data, result.end.name) == (b"input", "EOF"), result
    assert process.wait() == 0
    os.lseek(0, 0, os.SEEK_SET)
    result = fdwait.drain(0)
    assert (result.data, result.end.name) == (b"input", "EOF"), result
    os.write(1, b"done")
    """


def test_b034_a_program_whose_standard_streams_are_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"input")
    with (
        open(tmp_path / "in", "rb") as stdin,
        open(tmp_path / "out", "wb") as stdout,
        open(tmp_path / "err", "wb") as stderr,
    ):
        status = subprocess.run(
            program(PROGRAM), check=False, stdin=stdin, stdout=stdout, stderr=stderr, timeout=50
        ).returncode
    assert (tmp_path / "err").read_bytes() == b""
    assert (tmp_path / "out").read_bytes() == b"done"
    assert status == 0
