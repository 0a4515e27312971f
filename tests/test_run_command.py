"""`python -m fdwait run`: passes output through as it comes; says why it ended and whether that was all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import SLACK, STARVED, Owner, fill, lasts, prints_pattern, program, python, stretch, until_readable

import fdwait

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")

TALKS = ["sh", "-c", "printf out; printf error >&2; exit 3"]


def run_command(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fdwait", "run", *words]
    return subprocess.run(command, check=False, **{"capture_output": True, "timeout": 50} | options)


@contextlib.contextmanager
def running(*words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fdwait", "run", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes | options) as process:
        try:
            yield process
        finally:
            process.kill()


def last_line(stderr: bytes) -> str:
    return stderr.decode().splitlines()[-1]


def test_the_output_passes_through_and_one_line_says_the_end() -> None:
    done = run_command("--", *TALKS)
    assert (done.returncode, done.stdout) == (3, b"out")
    assert done.stderr == b"error\nfdwait: EOF, exit status 3; stdout 3 bytes, stderr 5 bytes\n"


def test_the_same_as_json() -> None:
    done = run_command("--json", "--", *TALKS)
    assert done.returncode == 3
    assert json.loads(last_line(done.stderr)) == {
        "args": TALKS,
        "returncode": 3,
        "end": "EOF",
        "stdout": {"end": "EOF", "total": 3, "elided": 0, "written": 3, "error": None},
        "stderr": {"end": "EOF", "total": 5, "elided": 0, "written": 5, "error": None},
    }


def test_words_that_look_like_our_options_belong_to_the_command() -> None:
    assert run_command("echo", "--json", "--timeout", "x").stdout == b"--json --timeout x\n"
    assert run_command("--", "echo", "--", "-h").stdout == b"-- -h\n"


def test_output_comes_through_at_once_and_input_is_the_commands() -> None:
    with running("--", "cat") as process:
        assert process.stdin
        assert process.stdout
        for word in (b"first", b"second"):
            process.stdin.write(word)
            process.stdin.flush()
            until_readable(process.stdout.fileno())
            assert os.read(process.stdout.fileno(), 100) == word
        process.stdin.close()
        assert process.wait(20) == 0


def test_every_byte_passes_through() -> None:
    size = 20_000_003
    done = run_command("--", *prints_pattern(size))
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(stretch(0, size)).digest()
    assert f"stdout {size} bytes" in last_line(done.stderr)


@pytest.mark.parametrize("stderr", [False, True], ids=["stdout", "stderr"])
def test_a_reader_that_is_slow_gets_everything(stderr: bool, own: Owner) -> None:
    """The command is over long before its output was read: that is no silence, and no reason to end."""
    size = 3_000_000
    r, w = own.pipe()
    fill(w)
    redirected = [] if not stderr else ["sh", "-c", '"$@" >&2', "sh"]
    stream = "stderr" if stderr else "stdout"
    with running("--json", "--", *redirected, *prints_pattern(size), **{stream: w}) as process:
        own.close(w)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)  # several times the linger
        got = fdwait.drain(r).data.lstrip(b"f")
        if not stderr:
            assert got == stretch(0, size)
        else:
            assert got[:size] == stretch(0, size)
            assert json.loads(got[size:])["stderr"]["total"] == size
        assert process.wait(20) == 0


def test_memory_does_not_grow_with_what_passes_through() -> None:
    size = 200 << 20
    code = """
        import resource, sys
        from pathlib import Path
        from fdwait.__main__ import main
        assert main(sys.argv[1:]) == 0
        # getrusage() on Linux counts in what the process was before its exec
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if sys.platform == "linux":
            peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
        print(peak, file=sys.stderr)
    """
    command = program(code, "run", "--", "head", "-c", str(size), "/dev/zero")
    done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=50)
    assert int(last_line(done.stderr)) < 100 << 10


def test_a_window_passes_the_head_at_once_and_the_tail_at_the_end() -> None:
    code = "import os, sys; os.write(1, b'0123456789' * 10); sys.stdin.read(); os.write(1, b'abcdefghij' * 10)"
    with running("--json", "--keep-head", "20", "--keep-tail", "10", "--", *python(code)) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        until_readable(process.stdout.fileno())
        head = os.read(process.stdout.fileno(), 1000)
        assert head == b"01234567890123456"  # the last 3 may begin a character that the gap cuts off
        process.stdin.close()
        marker = fdwait.make_marker(170).encode()
        assert process.stdout.read() == b"789" + marker + b"abcdefghij"
        report = json.loads(process.stderr.read())["stdout"]
        written = 30 + len(fdwait.make_marker(170).encode())
        assert report == {"end": "EOF", "total": 200, "elided": 170, "written": written, "error": None}


def test_a_window_that_holds_everything() -> None:
    done = run_command("--keep-head", "2", "--keep-tail", "2", "--", "printf", "abcd")
    assert done.stdout == b"abcd"
    assert "left out" not in last_line(done.stderr)


def test_a_window_cuts_no_character() -> None:
    done = run_command("--keep-head", "5", "--keep-tail", "4", "--", "printf", "ééééé")
    assert done.stdout.decode() == "éé" + fdwait.make_marker(2) + "éé"


def test_a_time_out_kills_and_says_so() -> None:
    start = time.monotonic()
    done = run_command("--timeout", "0.5", "--", "sh", "-c", "echo out; exec sleep 30")
    assert 0.5 <= time.monotonic() - start < 3 * SLACK
    assert (done.returncode, done.stdout) == (128 + signal.SIGKILL, b"out\n")
    assert last_line(done.stderr).startswith("fdwait: TIMEOUT, ended by signal 9 (Killed); stdout 4 bytes")


def test_a_time_out_does_not_wait_for_whoever_reads_nothing(own: Owner) -> None:
    r, w = own.pipe()
    fill(w)
    with running("--json", "--timeout", "0.5", "--", *prints_pattern(), stdout=w) as process:
        own.close(w)
        assert process.stderr
        with lasts(0, 3):
            report = json.loads(process.stderr.read())
    got = fdwait.drain(r).data.lstrip(b"f")
    assert report["end"] is None
    assert report["stdout"]["error"] == "nobody reads it"
    assert report["stdout"]["total"] > report["stdout"]["written"] == len(got)
    assert got == stretch(0, len(got))


def test_a_time_out_waits_for_whoever_reads_slowly(own: Owner) -> None:
    r, w = own.pipe()
    with running("--json", "--timeout", "0.3", "--", *prints_pattern(), stdout=w) as process:
        own.close(w)
        assert process.stderr
        got = b""
        while piece := os.read(r, 65536):
            got += piece
            time.sleep(0.02)
        report = json.loads(process.stderr.read())
    assert report["end"] == "TIMEOUT"
    assert report["stdout"]["total"] == report["stdout"]["written"]
    assert got == stretch(0, len(got)) == stretch(0, report["stdout"]["total"])


@pytest.mark.parametrize("tail", ["0", "1000000"], ids=["passing on", "writing the tail"])
def test_ctrl_c_while_nobody_reads(own: Owner, tail: str) -> None:
    """It is ours to say the last line, and how much was not passed on."""
    r, w = own.pipe()
    window = ["--keep-head", "100", "--keep-tail", tail] if tail != "0" else []
    command = ["sh", "-c", "echo started >&2; exec head -c 2000000 /dev/zero"]
    with running("--json", *window, "--", *command, stdout=w) as process:
        own.close(w)
        assert process.stderr
        assert process.stderr.readline() == b"started\n"
        assert select.select([r], [], [], 10)[0]
        time.sleep(0.3)  # until the pipe is full; where it is not, the outcome is the same
        process.send_signal(signal.SIGINT)
        with lasts(0, 2):
            report = json.loads(process.stderr.read())
    assert report["end"] is None
    assert report["stdout"]["error"]
    assert report["stdout"]["written"] == len(fdwait.drain(r).data) < 2_000_000


def test_a_signal_at_any_moment_leaves_no_child(own: Owner, rounds: Callable[[int, int], int]) -> None:
    """Also one that comes while the command is started."""
    for i in range(rounds(10, 200)):
        r, w = own.pipe()
        with running("--", "sh", "-c", "echo x; exec sleep 30", stdout=w, pass_fds=[w]) as process:
            own.close(w)
            time.sleep(0.06 + 0.003 * (i % 20))  # any moment is as good as another
            process.send_signal(signal.SIGTERM)
            assert fdwait.drain(r, timeout=20).end is fdwait.End.EOF  # nobody has it any more
            process.wait(20)
        own.close(r)


def test_standard_error_is_closed() -> None:
    code = """
        import os, sys
        from fdwait.__main__ import main
        os.close(2)
        sys.stderr = None  # as the interpreter has it, if it is closed from the start
        sys.exit(main(["run", "--", "echo", "hi"]))
        """
    done = subprocess.run(program(code), check=False, stdout=subprocess.PIPE, timeout=50)
    assert (done.returncode, done.stdout) == (126, b"")


def test_a_background_child_does_not_keep_it() -> None:
    done = run_command("--", "sh", "-c", "sleep 30 & echo $!")
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 0
    assert last_line(done.stderr).startswith("fdwait: EXITED, exit status 0")


def test_nobody_reads_any_more() -> None:
    """The command meets what it would meet without us."""
    with running("--json", "--", *prints_pattern()) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        report = json.loads(last_line(process.stderr.read()))
        assert process.wait(20) == report["returncode"] == 1  # Python ignores SIGPIPE, and gets EPIPE
    assert report["end"] is report["stdout"]["end"] is None
    assert report["stdout"]["error"] == "Broken pipe"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        done = run_command(
            "--", "sh", "-c", "echo out; echo error >&2", stdout=full, capture_output=False, stderr=subprocess.PIPE
        )
    assert last_line(done.stderr).startswith("fdwait: output not all passed on")
    assert "No space left on device" in last_line(done.stderr)
    assert done.stderr.startswith(b"error\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_first(number: signal.Signals) -> None:
    with running(
        "--json", "--", "sh", "-c", "echo $$; trap '' INT TERM HUP; echo ready; while :; do sleep 0.05; done"
    ) as process:
        assert process.stdout
        assert process.stderr
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        report = json.loads(process.stderr.read())
        assert process.wait(20) == 128 + signal.SIGKILL
    assert (report["end"], report["returncode"]) == ("STOPPED", -signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--", "/no/such/command"], 127),
        (["--", "/"], 126),
        (["--keep-head", "1", "--", "true"], 126),
        ([], 126),
        (["--timeout", "nan", "--", "true"], 126),
        (["--keep-head", "-1", "--keep-tail", "0", "--", "true"], 2),
        (["--timeout", "soon", "--", "true"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_run(words: list[str], status: int) -> None:
    done = run_command(*words)
    assert (done.returncode, done.stdout) == (status, b"")
    assert b"fdwait run: " in done.stderr


def test_standard_output_is_closed() -> None:
    command = [sys.executable, "-m", "fdwait", "run", "--", "sh", "-c", "echo started >&2"]
    shell = ["sh", "-c", '"$@" >&-', "sh", *command]
    done = subprocess.run(shell, check=False, stderr=subprocess.PIPE, timeout=50)
    assert done.returncode == 126
    assert b"started" not in done.stderr
    assert b"descriptor 1" in done.stderr


def test_a_status_for_each_command() -> None:
    for code in (0, 1, 42, 255):
        assert run_command("--", "sh", "-c", f"exit {code}").returncode == code
    assert run_command("--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
