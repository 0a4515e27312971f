"""run(): its arguments, its result, its exceptions."""

from __future__ import annotations

import array
import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from children import assert_no_child
from support import LINUX, STARVED, Owner, python, run_program, until_readable

import fdwait
from fdwait import Completed, End, Stop, Window, run

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")

TALKS = ["sh", "-c", "printf out; printf error >&2; exit 3"]


# ---- result ----


def test_the_result() -> None:
    done = run(TALKS)
    assert isinstance(done, subprocess.CompletedProcess)
    assert type(done) is Completed
    assert (done.args, done.returncode, done.stdout, done.stderr) == (TALKS, 3, b"out", b"error")
    assert (done.end, done.stdout_end, done.stderr_end) == (End.EOF, End.EOF, End.EOF)
    assert (done.stdin_taken, done.stdout_elided, done.stderr_elided) == (None, 0, 0)


def test_a_command_that_says_nothing() -> None:
    done = run(["true"])
    assert (done.returncode, done.stdout, done.stderr, done.end) == (0, b"", b"", End.EOF)


@pytest.mark.parametrize("status", [0, 1, 255])
def test_the_exit_status(status: int) -> None:
    assert run(["sh", "-c", f"exit {status}"]).returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_ended_by_a_signal(number: signal.Signals) -> None:
    assert run(["sh", "-c", f"ulimit -c 0; kill -{int(number)} $$"]).returncode == -number


def test_the_result_can_be_checked_later() -> None:
    run(["true"]).check_returncode()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(TALKS).check_returncode()
    assert (caught.value.returncode, caught.value.stdout, caught.value.stderr) == (3, b"out", b"error")


def test_repr_says_how_it_ended() -> None:
    assert (
        repr(run(["echo", "hi"]))
        == "Completed(args=['echo', 'hi'], returncode=0, end=EOF, stdout=b'hi\\n', stderr=b'')"
    )
    assert repr(run("exit 3", shell=True, stdout=None, stderr=None)) == (
        "Completed(args='exit 3', returncode=3, end=EOF)"
    )
    assert "stdin_taken=5" in repr(run(["cat"], input=b"12345"))


def test_a_dict_that_json_can_hold(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("printf 'a\\377b'; cat >&2")
    done = run(["sh", script], input=b"in")
    fields = {
        "args": ["sh", os.fspath(script)],
        "returncode": 0,
        "stdout": "a\\xffb",
        "stderr": "in",
        "end": "EOF",
        "stdout_end": "EOF",
        "stderr_end": "EOF",
        "stdin_taken": 2,
        "stdout_elided": 0,
        "stderr_elided": 0,
    }
    assert done.to_dict() == fields
    assert json.loads(json.dumps(done.to_dict())) == fields


@pytest.mark.parametrize("args", [b"true", [b"true"], ("true",), Path("true")], ids=repr)
def test_any_args_are_fit_for_json(args: Any) -> None:
    done = run(args)
    assert done.returncode == 0
    assert done.args is args
    assert "true" in json.dumps(done.to_dict())


def test_a_result_can_be_pickled() -> None:
    done = run(["cat"], input=b"x" * 100, keep=Window(1, 1))
    again = pickle.loads(pickle.dumps(done))
    assert type(again) is Completed
    assert vars(again) == vars(done)


# ---- where the streams go ----


def test_both_outputs_in_one() -> None:
    done = run(["sh", "-c", "echo 1; echo 2 >&2; echo 3; echo 4 >&2"], stderr=subprocess.STDOUT)
    assert (done.stdout, done.stderr) == (b"1\n2\n3\n4\n", None)
    assert (done.end, done.stdout_end, done.stderr_end) == (End.EOF, End.EOF, None)


def test_b162_the_order_of_what_both_outputs_say_in_one() -> None:
    code = "import os\nfor i in range(10_000): os.write(1 + i % 2, b'%d\\n' % i)"
    done = run(python(code), stderr=subprocess.STDOUT)
    assert done.stdout == b"".join(b"%d\n" % i for i in range(10_000))
    apart = run(python(code))
    assert apart.stdout == b"".join(b"%d\n" % i for i in range(0, 10_000, 2))
    assert apart.stderr == b"".join(b"%d\n" % i for i in range(1, 10_000, 2))


def test_output_into_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        done = run(TALKS, stdout=out)
    assert (done.stdout, done.stdout_end, done.stderr) == (None, None, b"error")
    with (tmp_path / "err").open("wb") as err:
        done = run(TALKS, stderr=err.fileno())
    assert (done.stdout, done.stderr, done.stderr_end) == (b"out", None, None)
    assert (tmp_path / "out").read_bytes() == b"out"
    assert (tmp_path / "err").read_bytes() == b"error"


def test_output_to_nowhere() -> None:
    done = run(TALKS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr, done.end) == (3, None, None, End.EOF)


def test_output_where_ours_goes() -> None:
    out = run_program("import fdwait; fdwait.run(['echo', 'passed'], stdout=None); print('done')")
    assert out == "passed\ndone\n"


def test_capture_output_changes_nothing() -> None:
    for capture in True, False:
        done = run(TALKS, capture_output=capture)
        assert (done.stdout, done.stderr) == (b"out", b"error")


def test_without_input_stdin_is_ours() -> None:
    assert run_program("import fdwait; print(fdwait.run(['cat']).stdout)", input="ours") == "b'ours'\n"


def test_stdin_from_elsewhere(own: Owner) -> None:
    r, w = own.pipe()
    os.write(w, b"given")
    own.close(w)
    done = run(["cat"], stdin=r)
    assert (done.stdout, done.stdin_taken) == (b"given", None)
    assert run(["cat"], stdin=subprocess.DEVNULL).stdout == b""


@pytest.mark.parametrize("text", [None, True])
def test_stdin_that_nobody_feeds_ends_at_once(text: bool | None) -> None:
    """subprocess.run() closes it, too."""
    done = run(["wc", "-c"], stdin=subprocess.PIPE, text=text)
    assert int(done.stdout) == 0
    assert done.stdin_taken is None


@pytest.mark.parametrize(
    "given",
    [b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), array.array("H", [1, 2, 65535]), memoryview(b"x-y")[:1]],
)
def test_input_of_any_kind(given: Any) -> None:
    done = run(["cat"], input=given)
    assert done.stdout == bytes(given)
    assert done.stdin_taken == len(bytes(given))


# ---- what goes to Popen ----


def test_popen_gets_its_arguments(tmp_path: Path, own: Owner) -> None:
    r, w = own.pipe()
    code = """
        import os
        os.write(int(os.environ["FD"]), b"passed")
        print(os.getcwd(), os.environ["WORD"], oct(os.umask(0)))
        """
    done = run(
        python(code),
        cwd=tmp_path,
        env=os.environ | {"WORD": "word", "FD": str(w)},
        pass_fds=[w],
        umask=0o027,
    )
    assert done.stdout.decode().split() == [os.path.realpath(tmp_path), "word", "0o27"]
    assert os.read(until_readable(r), 100) == b"passed"


def test_a_shell() -> None:
    done = run('echo "$0 $1"', shell=True, executable=shutil.which("sh"))
    assert (done.args, done.stdout) == ('echo "$0 $1"', f"{shutil.which('sh')} \n".encode())
    assert run(["echo $1", "sh", "one"], shell=True).stdout == b"one\n"


def test_a_session_of_its_own() -> None:
    code = "import os; print(os.getpid() == os.getsid(0), os.getpid() == os.getpgrp())"
    assert run(python(code), start_new_session=True, text=True).stdout == "True True\n"
    assert run(python(code), process_group=0, text=True).stdout == "False True\n"


@pytest.mark.skipif(not LINUX, reason="only Linux has F_SETPIPE_SZ")
def test_pipesize() -> None:
    code = "import fcntl; print(*(fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) for fd in range(3)))"
    assert run(python(code), input=b"", pipesize=8192).stdout == b"8192 8192 8192\n"


def test_every_argument_but_the_first_is_a_keyword() -> None:
    with pytest.raises(TypeError):
        run(["true"], b"")  # type: ignore[misc]


# ---- exceptions ----


def test_check() -> None:
    assert run(["true"], check=True).returncode == 0
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(TALKS, check=True)
    error = caught.value
    assert (error.cmd, error.returncode, error.stdout, error.stderr) == (TALKS, 3, b"out", b"error")
    assert (error.completed.returncode, error.completed.end) == (3, End.EOF)  # type: ignore[attr-defined]


def test_check_has_text_in_text_mode() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(TALKS, check=True, text=True)
    assert (caught.value.stdout, caught.value.stderr) == ("out", "error")
    assert caught.value.completed.stdout == "out"  # type: ignore[attr-defined]


REFUSED = {
    "input and stdin": (ValueError, {"input": b"", "stdin": subprocess.DEVNULL}),
    "input and a pipe for stdin": (ValueError, {"input": b"", "stdin": subprocess.PIPE}),
    "capture_output and stdout": (ValueError, {"capture_output": True, "stdout": subprocess.DEVNULL}),
    "capture_output and stderr": (ValueError, {"capture_output": True, "stderr": subprocess.STDOUT}),
    "text for bytes": (TypeError, {"input": "text"}),
    "bytes for text": (TypeError, {"input": b"bytes", "text": True}),
    "a number for bytes": (TypeError, {"input": 5}),
    "scattered bytes": (TypeError, {"input": memoryview(b"abcd")[::2]}),
    "text that cannot be encoded": (UnicodeEncodeError, {"input": "é", "encoding": "ascii"}),
    "a keep that is no window": (TypeError, {"keep": 1000}),
    "a stop that is none": (TypeError, {"stop": object()}),
    "a timeout that is no number": (ValueError, {"timeout": float("nan")}),
    "a timeout that is text": (TypeError, {"timeout": "1"}),
    "a linger that is no number": (ValueError, {"linger": float("nan")}),
    "a linger_cap that is no number": (ValueError, {"linger_cap": float("nan")}),
    "an argument that nobody knows": (TypeError, {"wrong": 1}),
    "text and universal_newlines at odds": (subprocess.SubprocessError, {"text": True, "universal_newlines": False}),
    "an unknown encoding": (LookupError, {"encoding": "no-such-encoding"}),
}


@pytest.mark.parametrize(("error", "options"), REFUSED.values(), ids=REFUSED)
def test_arguments_are_refused_before_it_runs(error: type[Exception], options: dict[str, Any], tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(error):
        run(["touch", ran], **options)
    assert not ran.exists()
    assert_no_child()


def test_no_argument_of_ours_is_refused_at_its_limits() -> None:
    for far in (None, float("inf"), 1e300, 10**30):
        assert run(["true"], timeout=far, linger=0, linger_cap=-1, keep=Window(10**30, 0)).end is End.EOF
    assert run(["true"], linger=float("inf"), linger_cap=float("inf"), stop=Stop()).end is End.EOF


def test_b136_a_command_line_that_is_too_long() -> None:
    size = 200 << 10 if LINUX else 4 << 20
    with pytest.raises(OSError) as caught:
        run(["echo", "x" * size], input=b"input")
    assert caught.value.errno == errno.E2BIG
    assert caught.value.filename == "echo"
    assert_no_child()


def test_it_is_what_the_package_exports() -> None:
    assert fdwait.run is run
    assert {"run", "Completed"} <= set(fdwait.__all__)
