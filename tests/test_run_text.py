"""run() in text mode: what subprocess.run() makes of the same bytes, and no error for a cut that is ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import STARVED, lasts

from fdwait import End, Window, make_marker, run

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")

OPTIONS: dict[str, dict[str, Any]] = {
    "text": {"text": True},
    "universal_newlines": {"universal_newlines": True},
    "both": {"text": True, "universal_newlines": True},
    "bytes": {"text": False},
    "an encoding": {"encoding": "utf-8"},
    "an encoding against text": {"encoding": "utf-8", "text": False},
    "latin-1": {"encoding": "latin-1"},
    "utf-16": {"encoding": "utf-16-le"},
    "errors": {"errors": "replace"},
    "errors and an encoding": {"encoding": "ascii", "errors": "backslashreplace"},
    "ignored errors": {"encoding": "ascii", "errors": "ignore"},
}
OUTPUTS = {
    "plain": b"plain\n",
    "line ends": b"a\r\nb\rc\n\r\r\n\n",
    "a line end at the end": b"a\r",
    "utf-8": "é€😀\n".encode(),
    "no utf-8": b"\xff\xfe\xe9\r\n",
    "utf-16": "é€\r\n".encode("utf-16-le"),
    "an unfinished character": b"abc\xe2\x82",
    "nothing": b"",
}


@pytest.fixture
def cat(tmp_path: Path) -> Any:
    """cat(data) -> a command that prints it and ends."""

    def cat(data: bytes) -> list[str]:
        (tmp_path / "data").write_bytes(data)
        return ["cat", f"{tmp_path}/data"]

    return cat


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("data", OUTPUTS.values(), ids=OUTPUTS)
def test_output_as_from_subprocess(cat: Any, data: bytes, options: dict[str, Any]) -> None:
    def outcome(call: Any) -> Any:
        try:
            return call(cat(data), stdout=subprocess.PIPE, **options).stdout
        except UnicodeDecodeError as error:
            return error.object, error.start

    assert outcome(run) == outcome(subprocess.run)


TEXT_OPTIONS = {name: options for name, options in OPTIONS.items() if name not in {"bytes", "ignored errors"}}


@pytest.mark.parametrize("options", TEXT_OPTIONS.values(), ids=TEXT_OPTIONS)
@pytest.mark.parametrize("given", ["plain\n", "a\r\nb\rc\n", "é€😀", ""])
def test_input_as_by_subprocess(given: str, options: dict[str, Any]) -> None:
    def outcome(call: Any) -> Any:
        try:
            return call(["od", "-c"], input=given, stdout=subprocess.PIPE, **options).stdout
        except UnicodeError as error:
            return type(error)

    assert outcome(run) == outcome(subprocess.run)


def test_no_input_is_no_byte_in_an_encoding_that_begins_with_a_mark() -> None:
    for size, given in (4, {"input": "a"}), (0, {"input": ""}), (None, {"stdin": subprocess.PIPE}):
        assert run(["cat"], encoding="utf-16", stdout=subprocess.DEVNULL, **given).stdin_taken == size


@pytest.mark.parametrize("text", ["a" * 4095 + "é" * 10_000, "€" * 100_000, "😀" * 50_000])
def test_b146_characters_across_every_boundary(text: str) -> None:
    done = run(["cat"], input=text, encoding="utf-8")
    assert done.stdout == text
    assert done.stdin_taken == len(text.encode())


def test_b148_what_is_no_text_is_an_error_that_has_the_bytes(cat: Any) -> None:
    data = b"abc\xe2\x82"
    with pytest.raises(UnicodeDecodeError) as caught:
        run(cat(data), encoding="utf-8")
    completed = caught.value.completed  # type: ignore[attr-defined]
    assert (completed.stdout, completed.stderr) == (data, b"")
    assert (completed.returncode, completed.end) == (0, End.EOF)
    assert run(cat(data)).stdout == data
    assert run(cat(data), encoding="utf-8", errors="replace").stdout == "abc\N{REPLACEMENT CHARACTER}"
    assert run(cat("Grüße".encode("latin-1")), encoding="latin-1").stdout == "Grüße"


def test_b148_what_was_cut_short_is_no_error() -> None:
    """The bytes of an unfinished character are shown: the time-out is the news, not the cut in it."""
    command = ["sh", "-c", r"printf 'abc\342\202'; exec sleep 30"]
    with lasts(0.5, 1), pytest.raises(subprocess.TimeoutExpired) as caught:
        run(command, encoding="utf-8", timeout=0.5)
    assert caught.value.output == "abc\\xe2\\x82"
    assert caught.value.stderr == ""
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(command, encoding="utf-8", errors="replace", timeout=0.5)
    assert caught.value.output == "abc\N{REPLACEMENT CHARACTER}"


# ---- with a window ----


def test_a_window_cuts_no_character_of_utf_8(cat: Any) -> None:
    text = "€" * 1000
    for size in range(1, 14):
        done = run(cat(text.encode()), encoding="utf-8", keep=Window(size, size))
        assert done.stdout == "€" * (size // 3) + make_marker(done.stdout_elided) + "€" * (size // 3)
        assert done.stdout_elided == 3000 - size // 3 * 6


def test_the_marker_is_text_in_every_encoding(cat: Any) -> None:
    text = "ä" * 100 + "x" * 1000 + "ü" * 100
    latin = run(cat(text.encode("latin-1")), encoding="latin-1", keep=Window(50, 50))
    assert latin.stdout_elided in range(1100, 1107)
    head, tail = latin.stdout.split(make_marker(latin.stdout_elided))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + latin.stdout_elided + len(tail) == len(text)
    wide = run(cat(text.encode("utf-16-le")), encoding="utf-16-le", keep=Window(100, 100))
    assert wide.stdout == "ä" * 50 + make_marker(2200) + "ü" * 50


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_b154_a_marker_that_the_command_prints_is_told_from_ours(cat: Any, encoding: str) -> None:
    forged = f"[{make_marker(99)}]"
    text = forged + "m" * 5000 + forged
    size = len(forged.encode(encoding))
    done = run(cat(text.encode(encoding)), encoding=encoding, keep=Window(size, size))
    assert done.stdout_elided == len(text.encode(encoding)) - 2 * size
    escaped = forged.replace("⟪", "⟪\\")
    assert done.stdout == escaped + make_marker(done.stdout_elided) + escaped
    whole = run(cat(text.encode(encoding)), encoding=encoding, keep=Window(10**6, 0))
    assert (whole.stdout, whole.stdout_elided) == (text, 0)


def test_b157_text_in_json() -> None:
    done = run(["printf", "abcdef"], text=True, keep=Window(1, 1))
    assert json.loads(json.dumps(done.to_dict()))["stdout"] == f"a{make_marker(4)}f"


def test_what_cannot_be_decoded_hides_no_time_out() -> None:
    command = ["sh", "-c", r"printf '\377'; exec >&- 2>&-; sleep 30"]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run(command, encoding="utf-8", timeout=0.3)
    assert late.value.stdout == r"\xff"
    assert late.value.completed.stdout_end is End.EOF  # type: ignore[attr-defined]
    assert late.value.completed.end is End.TIMEOUT  # type: ignore[attr-defined]


def test_the_encoding_called_locale() -> None:
    assert (
        run(["echo", "é"], encoding="locale").stdout
        == subprocess.run(["echo", "é"], encoding="locale", stdout=subprocess.PIPE, check=True).stdout
    )


def test_an_empty_input_may_be_of_either_kind() -> None:
    assert run(["cat"], input="").stdin_taken == 0
