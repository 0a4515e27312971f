"""Field cases of class GRANDCHILD: a descendant of the command keeps the pipe or the terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest
from states import terminal
from support import Owner, Task, lasts

from fdwait import End, drain

Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]
COMMANDS = {
    "in the background": ["sh", "-c", "sleep 30 & echo out; echo $!"],
    "in a session of its own": ["bash", "-c", "setsid sleep 30 & disown; echo out; echo $!"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_b076_a_silent_background_child(
    command: list[str], start: Start, place: Callable[[int], int], own: Owner
) -> None:
    for needed in command[0], *(["setsid"] if "setsid" in command[2] else []):
        if shutil.which(needed) is None:
            pytest.skip(f"needs the program {needed}")
    process, out = start(command, place)
    with lasts(0.3, 1.2):
        result = drain(out, process=process)
    data, number = result.data.splitlines()
    sleeper = int(number)
    try:
        assert data == b"out"
        assert result.end is End.EXITED
        assert process.wait(10) == 0
        os.kill(sleeper, 0)  # it is alive
        with lasts(0, 0.2):
            own.close(out)
    finally:
        os.kill(sleeper, signal.SIGKILL)


TALKS_ON = "(while echo tick; do sleep 0.05; done) & exit 0"


def test_b078_b080_a_chatty_background_child_does_not_keep_the_call(start: Start, own: Owner) -> None:
    """The cap, as it comes and set to less, and a time-out before it; each says why it ended."""

    def timed(at_least: float, tolerance: float, **options: float) -> None:
        process, out = outs.pop()
        with lasts(at_least, tolerance):
            result = drain(out, process=process, **options)
        expected = End.TIMEOUT if "timeout" in options else End.EXITED_BUSY
        assert result.end is expected
        assert expected.name in repr(result)
        assert result.data == b"tick\n" * (result.total // 5) != b""

    outs = [start(TALKS_ON, own.up) for _ in range(3)]
    tasks = [Task(timed, 5, 1), Task(timed, 1, 0.3, timeout=1), Task(timed, 0.7, 0.5, linger_cap=0.7)]
    for task in tasks:
        task.result()


def test_b080_only_eof_is_complete(start: Start, own: Owner) -> None:
    process, out = start("sleep 30 & echo out")
    silent = drain(out, process=process, linger=0.1)
    process, out = start("sleep 0.3; echo out")
    slow = drain(out, process=process, timeout=0.1)
    complete = drain(out, process=process)
    assert [x.end for x in (silent, slow, complete)] == [End.EXITED, End.TIMEOUT, End.EOF]
    assert complete.data == b"out\n"


def test_b082_a_background_child_keeps_the_terminal(own: Owner, place: Callable[[int], int]) -> None:
    master, slave = terminal(own)
    master = place(master)
    process = subprocess.Popen(
        ["sh", "-c", '(trap "" HUP; exec sleep 20) & echo hi'],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    own.close(slave)
    try:
        with lasts(0.3, 1.2):
            result = drain(master, process=process)
        assert (result.data, result.end) == (b"hi\r\n", End.EXITED)
        assert process.wait(10) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_late_output_of_a_background_child_comes_with_the_next_call(start: Start, place: Callable[[int], int]) -> None:
    command = "exec 3<&0; (read line <&3; echo late) & echo out"
    process, out = start(command, place, stdin=subprocess.PIPE)
    assert process.stdin is not None
    first = drain(out, process=process, linger=0.1)
    assert (first.data, first.end) == (b"out\n", End.EXITED)
    process.stdin.write(b"\n")
    process.stdin.flush()
    second = drain(out, process=process, linger=10)
    assert (second.data, second.end) == (b"late\n", End.EOF)


def test_a_process_that_somebody_else_reaped(start: Start, own: Owner) -> None:
    """The exit is noticed all the same: the drain ends."""
    r, _ = own.pipe()
    process, _ = start("sleep 0.2")
    reaper = Task(os.waitpid, process.pid, 0)
    with lasts(0.3, 0.6):
        assert drain(r, process=process, linger=0.2).end is End.EXITED
    reaper.result()


def test_a_process_given_by_its_number(start: Start, place: Callable[[int], int], own: Owner) -> None:
    process, _ = start("exit 0")
    r, w = own.pipe()
    os.write(w, b"out")
    result = drain(place(r), process=process.pid, linger=0.1)
    assert (result.data, result.end) == (b"out", End.EXITED)
    assert process.wait(10) == 0
