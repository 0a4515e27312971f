"""`python -m fdwait demo`: both results side by side, and an exit status that can be trusted."""

import re
import resource
import subprocess
import sys
import time

import pytest
from support import SLACK, python

import fdwait
from fdwait import __main__, _demo

TOTAL = len(_demo.PRINTED)


def run(*args: str, limit: str = "") -> "subprocess.CompletedProcess[str]":
    """Run `python -m fdwait`, under the shell's `ulimit` if one is given."""
    script = f'{limit or "true"} && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "fdwait", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def rows(output: str) -> list[tuple[str, int, int, int, str]]:
    """The rows of the table: collected by, descriptor, bytes, exit status, ended by."""
    found = re.findall(r"^  (.{16}) +(\d+) +(\d+) +(\d+)   (.+)$", output, re.MULTILINE)
    return [(how.strip(), int(fd), int(size), int(st), end) for how, fd, size, st, end in found]


def assert_fault_and_cure(done: "subprocess.CompletedProcess[str]") -> None:
    assert (done.returncode, done.stderr) == (0, "")
    few, lost, kept = rows(done.stdout)
    assert few[2:] == (TOTAL, 7, "end of file")
    assert lost[0] == "select() loop"
    assert lost[2:] == (0, 7, "ValueError, taken for the end")
    assert kept[0] == "fdwait.drain()"
    assert kept[2:] == (TOTAL, 7, "End.EOF")
    assert few[1] < 1024 <= min(lost[1], kept[1])
    last = done.stdout.splitlines()[-1]
    assert f"{TOTAL} bytes are gone" in last
    assert "drain() got them all" in last


def test_shows_both_results_within_five_seconds() -> None:
    start = time.monotonic()
    done = run("demo")
    assert time.monotonic() - start <= 5 * SLACK
    assert_fault_and_cure(done)


def test_raises_a_low_soft_limit() -> None:
    assert_fault_and_cure(run("demo", limit="ulimit -Sn 256"))


def test_the_lowest_hard_limit_that_is_enough() -> None:
    assert_fault_and_cure(run("demo", limit="ulimit -n 1200"))


@pytest.mark.parametrize("limit", [1000, 1199])
def test_a_low_hard_limit_is_said_with_what_to_do(limit: int) -> None:
    done = run("demo", limit=f"ulimit -n {limit}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"the hard limit on open descriptors is {limit}" in done.stderr
    assert "needs 1200 descriptors" in done.stderr
    assert "ulimit -Hn" in done.stderr
    assert "Traceback" not in done.stderr


def test_descriptors_that_are_taken_already_are_told_like_a_low_limit() -> None:
    code = """
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, 1200))
        for fd in range(10, 200):
            os.dup2(2, fd, inheritable=True)
        os.execv(sys.executable, [sys.executable, "-m", "fdwait", "demo"])
        """
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs 1200 descriptors" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_drain_that_loses_a_byte_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lossy(source: object, **options: object) -> object:
        return fdwait.drain(source, limit=TOTAL - 1)

    monkeypatch.setattr(_demo, "drain", lossy)
    assert __main__.main(["demo"]) == 1
    assert f"drain() got {TOTAL - 1} of {TOTAL} bytes" in capsys.readouterr().out


def test_gives_back_descriptors_and_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """The descriptor table and the limits are compared after each test; here the soft limit was raised."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        assert __main__.main(["demo"]) == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert soft != 1024


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"fdwait {fdwait.info()['fdwait']}\n")


@pytest.mark.parametrize("args", [(), ("nothing",), ("demo", "surplus")])
def test_wrong_usage_is_told(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m fdwait")
