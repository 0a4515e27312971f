"""How run() ends: field cases GRANDCHILD, LOST and STARVE, time-outs, process groups, Stop."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import a_group, assert_no_child, is_there, wait_until_ended
from support import (
    LINUX,
    SLACK,
    STARVED,
    Task,
    lasts,
    let_it_sleep,
    prints_at_once,
    prints_pattern,
    program,
    python,
    stretch,
    watch_exit,
)

from fdwait import Completed, End, Stop, Window, run

Rounds = Callable[[int, int], int]

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    yield
    assert_no_child()


def expires(*args: Any, **options: Any) -> Completed:
    """What TimeoutExpired carries, which is the same in each of its places."""
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(*args, **options)
    error = caught.value
    completed: Completed = error.completed  # type: ignore[attr-defined]
    assert (error.cmd, error.timeout) == (args[0], options["timeout"])
    assert error.output == error.stdout == completed.stdout
    assert error.stderr == completed.stderr
    return completed


# ---- GRANDCHILD ----

COMMANDS = {
    "in the background": ["sh", "-c", "sleep 30 & echo out; echo $!"],
    "in a session of its own": ["bash", "-c", "setsid sleep 30 & disown; echo out; echo $!"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_b076_a_silent_background_child(command: list[str]) -> None:
    for needed in command[0], *(["setsid"] if "setsid" in command[2] else []):
        if shutil.which(needed) is None:
            pytest.skip(f"needs the program {needed}")
    with lasts(0.3, 1.2):
        done = run(command)
    out, pid = done.stdout.split()
    assert (out, done.returncode) == (b"out", 0)
    assert (done.end, done.stdout_end, done.stderr_end) == (End.EXITED, End.EXITED, End.EXITED)
    os.kill(int(pid), signal.SIGKILL)  # still there


def test_b080_each_stream_says_its_own_end() -> None:
    with a_group() as group:
        done = run(["sh", "-c", "sleep 30 2>/dev/null & echo out"], process_group=group, linger=0.1)
    assert (done.end, done.stdout_end, done.stderr_end) == (End.EXITED, End.EXITED, End.EOF)
    assert "end=EXITED" in repr(done)
    assert done.to_dict()["stdout_end"] == "EXITED"


TICKS = ["sh", "-c", "(while echo tick; do sleep 0.05; done) & exit 3"]


def test_b078_a_background_child_that_talks_on() -> None:
    def busy(seconds: float, **options: Any) -> None:
        with lasts(seconds, 1):
            done = run(TICKS, process_group=group, **options)
        assert (done.returncode, done.end, done.stdout_end) == (3, End.EXITED_BUSY, End.EXITED_BUSY)
        assert done.stdout == b"tick\n" * (len(done.stdout) // 5) != b""

    def timed() -> None:
        with lasts(1, 0.5):
            completed = expires(TICKS, process_group=group, timeout=1)
        assert (completed.returncode, completed.end) == (3, End.TIMEOUT)  # it had ended long before
        assert completed.stdout == b"tick\n" * (len(completed.stdout) // 5) != b""

    with a_group() as group:
        for task in [Task(busy, 5), Task(busy, 0.7, linger_cap=0.7), Task(timed)]:
            task.result()


def test_no_linger_still_takes_what_is_there() -> None:
    with a_group() as group, lasts(0, 1):
        done = run(["sh", "-c", "sleep 30 & printf out"], process_group=group, linger=0)
    assert (done.stdout, done.end) == (b"out", End.EXITED)


# ---- LOST ----

RUNS = """
    import sys, fdwait
    for line in sys.stdin:
        done = fdwait.run(["sh", "-c", line.strip()])
        print(done.stdout.hex(), done.end.name, done.returncode, flush=True)
    """


def test_b065_stopped_while_the_command_writes_and_exits(rounds: Rounds, tmp_path: Path) -> None:
    go, here = tmp_path / "go", tmp_path / "here"
    os.mkfifo(go)
    os.mkfifo(here)
    with subprocess.Popen(program(RUNS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdin
        assert runner.stdout
        try:
            for _ in range(rounds(10, 200)):
                print(f"echo $$ >'{here}'; read go <'{go}'; printf hi; exit 7", file=runner.stdin, flush=True)
                with watch_exit(int(here.read_text())) as command_exited:
                    runner.send_signal(signal.SIGSTOP)
                    assert os.WIFSTOPPED(os.waitpid(runner.pid, os.WUNTRACED)[1])
                    go.write_text("\n")
                    command_exited()
                runner.send_signal(signal.SIGCONT)
                assert runner.stdout.readline().split() == [b"hi".hex(), "EOF", "7"]
        finally:
            runner.kill()


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 65535, 65536])
def test_b067_written_in_one_go(size: int) -> None:
    done = run(prints_at_once(size))
    assert (done.stdout, done.end, done.returncode) == (stretch(0, size), End.EOF, 0)


@pytest.mark.skipif(not LINUX, reason="only Linux has F_SETPIPE_SZ")
def test_b067_in_an_enlarged_pipe() -> None:
    done = run(prints_at_once(1 << 20), pipesize=1 << 20)
    assert (done.stdout, done.end, done.returncode) == (stretch(0, 1 << 20), End.EOF, 0)


@pytest.mark.parametrize("times", [1, 2, 17])
@pytest.mark.parametrize("chunk", [4096, 64 << 10, 2 << 20])
def test_b069_around_the_size_of_a_chunk(chunk: int, times: int) -> None:
    """Both streams at once, and three commands."""

    def both(size: int) -> Completed:
        return run(["sh", "-c", '"$@" & "$@" >&2; wait', "sh", *prints_pattern(size)])

    sizes = [chunk * times + more for more in (-1, 0, 1)]
    for size, task in [(size, Task(both, size)) for size in sizes]:
        done = task.result()
        assert (len(done.stdout), len(done.stderr), done.end) == (size, size, End.EOF)
        expected = hashlib.sha256(stretch(0, size)).digest()
        assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(done.stderr).digest() == expected


@pytest.mark.parametrize("first", [1, 2])
def test_b075_two_streams_closed_in_either_order(first: int, rounds: Rounds) -> None:
    code = f"""
        import os
        for fd in ({first}, {3 - first}):
            left = 200_000
            while left:
                left -= os.write(fd, bytes([fd]) * left)
            os.close(fd)
        """
    for _ in range(rounds(3, 50)):
        done = run(python(code))
        assert (done.stdout, done.stderr) == (b"\1" * 200_000, b"\2" * 200_000)
        assert (done.stdout_end, done.stderr_end, done.returncode) == (End.EOF, End.EOF, 0)


# ---- time-outs ----


def test_a_time_out_has_what_there_was() -> None:
    with lasts(1, 0.5):
        completed = expires(["sh", "-c", "printf out; printf error >&2; exec sleep 30"], timeout=1)
    assert (completed.stdout, completed.stderr) == (b"out", b"error")
    assert (completed.returncode, completed.end) == (-signal.SIGKILL, End.TIMEOUT)
    assert (completed.stdout_end, completed.stderr_end) == (End.TIMEOUT, End.TIMEOUT)


def test_and_text_in_text_mode() -> None:
    completed = expires(["sh", "-c", "printf out; exec sleep 30"], timeout=0.5, text=True)
    assert (completed.stdout, completed.stderr) == ("out", "")


@pytest.mark.parametrize("timeout", [0, -1, float("-inf")])
def test_a_time_that_is_up_already(timeout: float) -> None:
    with lasts(0, 0.5):
        completed = expires(["sleep", "30"], timeout=timeout, input=b"never read")
    assert (completed.returncode, completed.stdin_taken, completed.end) == (-signal.SIGKILL, 0, End.TIMEOUT)


def test_a_command_that_ends_in_time_is_none() -> None:
    assert run(["sh", "-c", "sleep 0.2; echo out"], timeout=30, check=True).stdout == b"out\n"


def test_what_was_complete_before_the_time_was_up_says_so() -> None:
    completed = expires(["sh", "-c", "printf out; exec >&-; exec sleep 30"], timeout=0.5)
    assert (completed.stdout, completed.stdout_end) == (b"out", End.EOF)
    assert (completed.stderr_end, completed.end) == (End.TIMEOUT, End.TIMEOUT)


def test_a_command_that_closes_its_outputs_and_lives_on() -> None:
    closes = "printf out; exec >&- 2>&-; "
    with lasts(0.5, 1):
        done = run(["sh", "-c", closes + "sleep 0.5; exit 3"])
    assert (done.stdout, done.returncode, done.end) == (b"out", 3, End.EOF)
    with lasts(0.5, 0.5):
        completed = expires(["sh", "-c", closes + "exec sleep 30"], timeout=0.5)
    assert (completed.stdout, completed.returncode) == (b"out", -signal.SIGKILL)
    assert (completed.stdout_end, completed.stderr_end, completed.end) == (End.EOF, End.EOF, End.TIMEOUT)


def test_a_time_out_with_nothing_captured() -> None:
    with lasts(0.3, 0.5):
        completed = expires(["sleep", "30"], timeout=0.3, stdout=None, stderr=None)
    assert (completed.stdout, completed.stderr, completed.stdout_end) == (None, None, None)
    assert (completed.returncode, completed.end) == (-signal.SIGKILL, End.TIMEOUT)


def test_a_command_that_ignores_what_can_be_ignored() -> None:
    with lasts(0.5, 0.5):
        completed = expires(["sh", "-c", "trap '' TERM INT HUP; echo out; while :; do sleep 0.02; done"], timeout=0.5)
    assert (completed.stdout, completed.returncode) == (b"out\n", -signal.SIGKILL)


def test_what_is_written_until_the_kill_is_taken(tmp_path: Path) -> None:
    """The command notes how much it has written, each time it has."""
    note = tmp_path / "note"
    code = """
        import os, sys
        note = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        written = 0
        while True:
            written += os.write(1, b"x" * 4096)
            os.pwrite(note, b"%020d" % written, 0)
        """
    completed = expires(python(code, os.fspath(note)), timeout=1, keep=Window(0, 0))
    assert completed.stdout_elided >= int(note.read_bytes()) > 1_000_000


# ---- process groups ----

LEADS = {"session": {"start_new_session": True}, "group": {"process_group": 0}}
PARENT = ["sh", "-c", "sleep 30 & echo $!; exec sleep 30"]


@pytest.mark.parametrize("options", LEADS.values(), ids=LEADS)
def test_a_group_of_its_own_is_killed_whole(options: dict[str, Any]) -> None:
    with lasts(0.5, 0.5):
        completed = expires(PARENT, timeout=0.5, **options)
    assert completed.returncode == -signal.SIGKILL
    wait_until_ended(int(completed.stdout))


@pytest.mark.parametrize("options", LEADS.values(), ids=LEADS)
def test_also_when_its_leader_has_ended(options: dict[str, Any]) -> None:
    """It is a zombie until the end: the number of the group is its own."""
    with lasts(0.5, 0.5):
        completed = expires(
            ["sh", "-c", "sleep 30 & echo $!; exit 3"], timeout=0.5, linger=20, linger_cap=20, **options
        )
    assert completed.returncode == 3
    wait_until_ended(int(completed.stdout))


@pytest.mark.parametrize("options", [{}, {"start_new_session": False}], ids=str)
def test_in_our_own_group_the_command_alone(options: dict[str, Any]) -> None:
    """And its child, which holds the pipes, does not hold us up."""
    with lasts(0.5, 0.5):
        completed = expires(PARENT, timeout=0.5, **options)
    assert completed.returncode == -signal.SIGKILL
    os.kill(int(completed.stdout), signal.SIGKILL)  # still there


def test_in_a_group_of_others_the_command_alone() -> None:
    with a_group() as group:
        completed = expires(PARENT, timeout=0.5, process_group=group)
        assert is_there(group)
        os.kill(int(completed.stdout), signal.SIGKILL)


# ---- Stop ----


def test_a_stop_kills_the_command() -> None:
    stop = Stop()
    setter = Task(lambda: (stop.set(), time.monotonic())[1], delay=0.5)
    done = run(["sh", "-c", "printf out; exec sleep 30"], stop=stop, timeout=20)
    assert time.monotonic() - setter.result() < 0.3 * SLACK
    assert (done.stdout, done.returncode, done.end) == (b"out", -signal.SIGKILL, End.STOPPED)
    assert (done.stdout_end, done.stderr_end) == (End.STOPPED, End.STOPPED)


def test_a_stop_that_was_set_before() -> None:
    stop = Stop()
    stop.set()
    with lasts(0, 0.5):
        done = run(["sleep", "30"], stop=stop, input=b"never read")
    assert (done.returncode, done.end, done.stdin_taken) == (-signal.SIGKILL, End.STOPPED, 0)


def test_a_stop_that_is_never_set_changes_nothing() -> None:
    done = run(["sh", "-c", "cat; exit 3"], stop=Stop(), input=b"in")
    assert (done.stdout, done.returncode, done.end) == (b"in", 3, End.EOF)


def test_one_stop_for_many() -> None:
    stop = Stop()
    tasks = [Task(run, ["sleep", "30"], stop=stop, start_new_session=True) for _ in range(8)]
    let_it_sleep()
    with lasts(0, 0.5):
        stop.set()
        assert {task.result().end for task in tasks} == {End.STOPPED}


def test_a_stopped_command_that_fails_its_check() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(["sleep", "30"], stop=stop, check=True)
    assert caught.value.completed.end is End.STOPPED  # type: ignore[attr-defined]


# ---- STARVE ----


def test_b173_endless_output_ends_in_time() -> None:
    for keep, seconds in (Window(1000, 1000), 1), (None, 0.2):
        with lasts(seconds, 0.5):
            completed = expires(["yes"], timeout=seconds, keep=keep)
        assert (completed.returncode, completed.end) == (-signal.SIGKILL, End.TIMEOUT)
        assert len(completed.stdout) + completed.stdout_elided > 1_000_000
    assert completed.stdout.startswith(b"y\n" * 500_000)


def test_b173_on_both_streams_and_both_ways() -> None:
    with lasts(0.5, 0.5):
        completed = expires(
            ["sh", "-c", "yes & yes >&2 & exec cat >/dev/null"],
            input=bytes(1 << 30),
            timeout=0.5,
            keep=Window(0, 1000),
            start_new_session=True,
        )
    for stream in "stdout", "stderr":
        assert getattr(completed, f"{stream}_elided") > 1_000_000, stream
    assert completed.stdin_taken is not None
    assert completed.stdin_taken > 1_000_000


def test_b173_or_by_a_stop() -> None:
    stop = Stop()
    setter = Task(lambda: (stop.set(), time.monotonic())[1], delay=0.3)
    done = run(["yes"], stop=stop, keep=Window(10, 10))
    assert time.monotonic() - setter.result() < 0.3 * SLACK
    assert done.end is End.STOPPED


def test_b175_the_ends_of_many_are_noticed_as_they_come() -> None:
    """Each tells the time, which is the same for all processes, as the last thing that it does."""

    def late(seconds: float) -> float:
        code = "import sys, time; time.sleep(float(sys.argv[1])); print(time.monotonic())"
        done = run(python(code, str(seconds)), timeout=30)
        return time.monotonic() - float(done.stdout)

    tasks = [Task(late, 0.5 + i / 64) for i in range(64)]
    assert max(task.result() for task in tasks) < 0.2 * SLACK
