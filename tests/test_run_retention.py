"""Field cases of class RETENTION, for run(): a gap is told in every form that a result can take."""

from __future__ import annotations

import json
import subprocess

import pytest
from support import STARVED, python

from fdwait import MARKER, Completed, End, Window, make_marker, run

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")


def test_b150_one_marker_in_its_place() -> None:
    code = "for i in range(1, 22): print(f'step {i:2} ' + chr(64 + i) * (228 + (i < 4)), flush=True)"
    whole = run(python(code)).stdout
    assert len(whole) == 21 * 237 + 3 + 20 - 20
    done = run(python(code), keep=Window(500, 500))
    assert done.stdout == whole[:500] + make_marker(len(whole) - 1000).encode() + whole[-500:]
    assert done.stdout_elided == len(whole) - 1000
    assert (done.end, done.stderr, done.stderr_elided) == (End.EOF, b"", 0)


@pytest.mark.parametrize("keep", [Window(0, 0), Window(0, 1000), Window(1000, 0), Window(10, 2_000_000)])
def test_b154_whatever_is_left_out_is_counted(keep: Window) -> None:
    size = 5_000_000
    code = f"import os; [os.write(fd, b'%d' % fd * 5000) for fd in (1, 2) for _ in range({size // 5000})]"
    done = run(python(code), keep=keep)
    for name, byte in ("stdout", b"1"), ("stderr", b"2"):
        elided = getattr(done, f"{name}_elided")
        assert elided == size - keep.head - keep.tail
        assert getattr(done, name) == byte * keep.head + make_marker(elided).encode() + byte * keep.tail


def test_a_window_that_holds_everything_leaves_no_trace() -> None:
    done = run(["printf", "abcdef"], keep=Window(3, 3))
    assert (done.stdout, done.stdout_elided) == (b"abcdef", 0)
    assert "elided" not in repr(done)


def test_b154_a_marker_that_the_command_prints_is_told_from_ours() -> None:
    forged = make_marker(99)
    command = ["printf", "%s", forged + "m" * 5000 + forged]
    size = len(forged.encode())
    done = run(command, keep=Window(size, size))
    assert done.stdout.count(MARKER.encode()) == 1
    assert done.stdout.count(make_marker(5000).encode()) == 1
    assert done.stdout_elided == 5000
    whole = run(command)  # nothing is left out: nothing is touched, and the field says so
    assert (whole.stdout, whole.stdout_elided) == ((forged + "m" * 5000 + forged).encode(), 0)


def gapped() -> Completed:
    return run(["sh", "-c", "printf aXXXb; printf cXXXXd >&2"], keep=Window(1, 1))


def test_b157_every_form_carries_the_gap() -> None:
    done = gapped()
    out, err = make_marker(3), make_marker(4)
    assert (done.stdout.decode(), done.stderr.decode()) == (f"a{out}b", f"c{err}d")
    assert "stdout_elided=3" in repr(done)
    assert "stderr_elided=4" in repr(done)
    fields = json.loads(json.dumps(done.to_dict()))
    assert (fields["stdout"], fields["stdout_elided"]) == (f"a{out}b", 3)
    assert (fields["stderr"], fields["stderr_elided"]) == (f"c{err}d", 4)


def test_b157_so_does_a_stream_that_was_not_captured_beside_one_that_was() -> None:
    done = run(["printf", "aXXXb"], stderr=None, keep=Window(1, 1))
    assert (done.stdout_elided, done.stderr_elided, done.stderr) == (3, 0, None)


def test_b157_and_an_exception() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(["sh", "-c", "printf aXXXb; exit 3"], keep=Window(1, 1), check=True)
    assert failed.value.stdout.decode() == f"a{make_marker(3)}b"
    assert failed.value.completed.stdout_elided == 3  # type: ignore[attr-defined]
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        run(["yes"], keep=Window(2, 2), timeout=0.2)
    elided = expired.value.completed.stdout_elided  # type: ignore[attr-defined]
    assert elided > 100_000
    assert expired.value.output is not None
    assert expired.value.output.startswith(b"y\n" + make_marker(elided).encode())
