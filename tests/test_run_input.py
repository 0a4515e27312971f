"""run(input=...): field cases of the STDIN classes. Every byte goes in, or its absence is counted."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import a_group, assert_no_child
from support import LINUX, SLACK, STARVED, Task, lasts, python, run_program, stretch

from fdwait import End, Stop, run

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")

MIB = 1 << 20
LARGE = bytes(8 * MIB)
TALKS_FIRST = """
    import os
    left = 1 << 20
    while left:
        left -= os.write(1, b"o" * left)
    count = 0
    while data := os.read(0, 1 << 20):
        count += len(data)
    os.write(1, b"%d" % count)
    """
HASHES = """
    import hashlib, os
    seen = hashlib.sha256()
    while data := os.read(0, 1 << 20):
        seen.update(data)
    os.write(1, seen.digest())
    """


def reads(size: int, then: str = "") -> list[str]:
    """A command that reads exactly so many bytes, writes their hash, and does something else."""
    code = """
        import hashlib, os, sys
        left, seen = int(sys.argv[1]), hashlib.sha256()
        while left:
            data = os.read(0, min(left, 7919))
            seen.update(data)
            left -= len(data)
        os.write(1, seen.digest())
        exec(sys.argv[2])
        """
    return python(code, str(size), then)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert_no_child()
    assert threading.active_count() == before


# ---- STDIN-DEADLOCK ----


def test_b125_output_before_input_does_not_lock_up() -> None:
    done = run(python(TALKS_FIRST), input=LARGE, timeout=50)
    assert done.stdout == b"o" * MIB + b"8388608"
    assert (done.returncode, done.end, done.stdin_taken) == (0, End.EOF, len(LARGE))


def test_large_input_and_output_at_once() -> None:
    data = stretch(0, 20_000_003)
    done = run(["cat"], input=data, timeout=50)
    assert done.stdout == data
    assert (done.end, done.stdin_taken) == (End.EOF, len(data))


@pytest.mark.parametrize("size", [10, 4 * MIB])
def test_b127_the_deadline_covers_the_input(size: int) -> None:
    with lasts(1, 0.5), pytest.raises(subprocess.TimeoutExpired) as caught:
        run(["sleep", "30"], input=bytes(size), timeout=1)
    completed = caught.value.completed  # type: ignore[attr-defined]
    assert (completed.returncode, completed.end, completed.stdin_taken) == (-signal.SIGKILL, End.TIMEOUT, 0)


# ---- STDIN-EPIPE ----


def test_b130_a_command_that_wants_little() -> None:
    done = run(["head", "-c", "1"], input=b"x" * len(LARGE), timeout=50)
    assert (done.stdout, done.stderr, done.returncode, done.end) == (b"x", b"", 0, End.EOF)
    assert done.stdin_taken is not None
    assert 1 <= done.stdin_taken < len(LARGE)


@pytest.mark.parametrize("given", [LARGE, b"x", b""], ids=len)
def test_b130_a_command_that_wants_nothing(given: bytes) -> None:
    done = run(["true"], input=given, timeout=50)
    assert (done.stdout, done.returncode, done.end, done.stdin_taken) == (b"", 0, End.EOF, 0)


def test_b130_killed_amid_its_input() -> None:
    data = stretch(0, len(LARGE))
    done = run(reads(1_000_003, "import signal; os.kill(os.getpid(), signal.SIGKILL)"), input=data, timeout=50)
    assert (done.returncode, done.end, done.stdin_taken) == (-signal.SIGKILL, End.EOF, 1_000_003)
    assert done.stdout == hashlib.sha256(data[:1_000_003]).digest()


@pytest.mark.parametrize("disposition", ["SIG_DFL", "SIG_IGN"])
def test_b130_a_broken_pipe_does_not_kill_us(disposition: str) -> None:
    code = f"""
        import signal, fdwait
        signal.signal(signal.SIGPIPE, signal.{disposition})
        for _ in range(5):
            done = fdwait.run(["sh", "-c", "exec 0<&-; sleep 0.05; exit 3"], input=bytes(8 << 20))
            assert (done.returncode, done.stdin_taken) == (3, 0), done
        assert signal.getsignal(signal.SIGPIPE) == signal.{disposition}
        assert not signal.sigpending()
        print("done")
        """
    assert run_program(code) == "done\n"


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 100_000, MIB - 1, MIB])
def test_b132_what_was_taken_is_counted(size: int) -> None:
    data = stretch(0, MIB)
    done = run(reads(size), input=data, timeout=50)
    assert (done.returncode, done.end, done.stdin_taken) == (0, End.EOF, size)
    assert done.stdout == hashlib.sha256(data[:size]).digest()


def test_b132_also_at_a_time_out() -> None:
    data = stretch(0, len(LARGE))
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(reads(150_001, "import time; time.sleep(30)"), input=data, timeout=SLACK)
    assert caught.value.completed.stdin_taken == 150_001  # type: ignore[attr-defined]
    assert caught.value.output == hashlib.sha256(data[:150_001]).digest()


def test_b132_and_a_stop(tmp_path: Path) -> None:
    data = stretch(0, len(LARGE))
    there = tmp_path / "there"
    stop = Stop()
    task = Task(run, reads(150_001, f"open({str(there)!r}, 'w'); import time; time.sleep(30)"), input=data, stop=stop)
    while not there.exists():
        assert task.is_alive()
        time.sleep(0.01)
    stop.set()
    done = task.result()
    assert (done.end, done.returncode, done.stdin_taken) == (End.STOPPED, -signal.SIGKILL, 150_001)
    assert done.stdout == hashlib.sha256(data[:150_001]).digest()


# ---- STDIN-ARG, STDIN-BYTES ----


@pytest.mark.parametrize("size", [0, 131_071, 131_072, 131_073, MIB, 64 * MIB])
def test_b134_any_size(size: int) -> None:
    done = run(["wc", "-c"], input=bytes(size), timeout=50)
    assert (int(done.stdout), done.stdin_taken) == (size, size)


@pytest.mark.parametrize("data", [bytes(range(256)) * 4096, bytes(MIB)], ids=["every byte", "zeros"])
def test_b137_any_bytes(data: bytes) -> None:
    done = run(python(HASHES), input=data, timeout=50)
    assert done.stdout == hashlib.sha256(data).digest()


def test_b139_nothing_in_it_means_anything(tmp_path: Path) -> None:
    marks = ["EOF", "'EOF'", '"EOF"', "$(touch x)", "`touch x`", "; touch x", "\\", "'", '"', "END", "\x04", "\0", "⟪"]
    data = "\n".join([*marks, *marks]).encode()
    for given in data, data + b"\n":
        assert run(["cat"], input=given, cwd=tmp_path).stdout == given
        assert run("cat", shell=True, input=given, cwd=tmp_path).stdout == given
    assert list(tmp_path.iterdir()) == []


def test_the_input_is_the_callers_and_not_changed() -> None:
    data = bytearray(stretch(0, 3 * MIB))
    before = bytes(data)
    assert run(["cat"], input=data).stdout == before
    data.append(0)  # not held any more
    assert data == before + b"\0"


# ---- others at the pipe ----


def test_a_command_that_closes_its_stdin_and_lives_on() -> None:
    with lasts(0.5, 1.5):
        done = run(["sh", "-c", "exec 0<&-; sleep 0.5; echo done; exit 3"], input=LARGE, timeout=50)
    assert (done.stdout, done.returncode, done.end, done.stdin_taken) == (b"done\n", 3, End.EOF, 0)


def test_a_command_that_closes_its_stdin_and_does_not_end() -> None:
    with lasts(0.5, 0.5), pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", "exec 0<&-; exec sleep 30"], input=LARGE, timeout=0.5)


HOLDS = "exec 3<&0; sleep 30 <&3 {redirected} & echo out; exit 3"


def test_a_background_child_holds_stdin_and_never_reads() -> None:
    with a_group() as group, lasts(0.3, 1.2):
        command = ["sh", "-c", HOLDS.format(redirected=">/dev/null 2>&1 3<&-")]
        done = run(command, input=LARGE, process_group=group, timeout=50)
    assert (done.stdout, done.returncode, done.end) == (b"out\n", 3, End.EOF)
    assert done.stdin_taken == 0


def test_a_background_child_holds_everything() -> None:
    with a_group() as group, lasts(0.3, 1.2):
        done = run(["sh", "-c", HOLDS.format(redirected="")], input=LARGE, process_group=group, timeout=50)
    assert (done.stdout, done.returncode, done.end, done.stdin_taken) == (b"out\n", 3, End.EXITED, 0)


@pytest.mark.skipif(not LINUX, reason="elsewhere nobody but the reader knows what is left in the pipe")
def test_a_background_child_goes_on_reading() -> None:
    """The linger is for it, too, and the cap is its end."""
    code = "import os, time\nwhile os.read(0, 65536): time.sleep(0.02)"
    with a_group() as group, lasts(0.8, 1.2):
        command = ["sh", "-c", 'exec 3<&0; "$@" <&3 >/dev/null 2>&1 & echo out', "sh", *python(code)]
        done = run(command, input=bytes(64 * MIB), process_group=group, linger_cap=0.8, timeout=50)
    assert (done.stdout, done.returncode, done.end) == (b"out\n", 0, End.EOF)
    assert done.stdin_taken is not None
    assert 65536 <= done.stdin_taken < 64 * MIB


def test_a_background_child_that_reads_to_the_end_gets_it(tmp_path: Path) -> None:
    data = stretch(0, 3 * MIB)
    copy, copied = tmp_path / "copy", tmp_path / "copied"
    os.mkfifo(copied)
    script = 'exec 3<&0; (sleep 0.1; cat <&3 >"$0"; echo all >"$1") >/dev/null 2>&1 & exit 3'
    done = run(["sh", "-c", script, copy, copied], input=data, linger=20, linger_cap=40, timeout=50)
    assert (done.returncode, done.end) == (3, End.EOF)
    assert copied.read_text() == "all\n"
    assert copy.read_bytes() == data
    # What the command left behind in the pipe, nobody can count any more once its end was fed.
    assert done.stdin_taken is not None
    assert len(data) - 65536 <= done.stdin_taken <= len(data)


@pytest.mark.skipif(not LINUX, reason="elsewhere nothing tells what is left after the last byte")
def test_what_a_background_child_reads_is_counted_to_the_end() -> None:
    """Long after the command has gone and the last byte has been fed."""
    reads = "while n=$(dd bs=5000 count=1 2>/dev/null | wc -c); [ $n -gt 0 ]; do echo $n; sleep 0.01; done"
    done = run(["sh", "-c", f"exec 3<&0; ({reads}) <&3 & exit 7"], input=bytes(100_000), linger=20, linger_cap=40)
    assert (done.returncode, done.end) == (7, End.EOF)
    assert sum(map(int, done.stdout.split())) == done.stdin_taken == 100_000


def test_a_buffer_can_be_changed_when_it_was_fed() -> None:
    data = bytearray(4 * MIB)
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run(["sleep", "30"], input=data, timeout=0.1)
    del data[: late.value.completed.stdin_taken or 1]  # type: ignore[attr-defined]
