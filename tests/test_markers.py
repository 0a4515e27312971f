"""The marker that tells a gap, and only a gap."""

from __future__ import annotations

import os

import pytest
from support import Owner

from fdwait import MARKER, Window, contains_marker, drain, make_marker

Pipe = tuple[int, int]


def drained(data: bytes, keep: Window | None) -> bytes:
    with Owner() as own:
        r, w = own.pipe()
        os.write(w, data)
        own.close(w)
        return drain(r, keep=keep).data


def test_a_marker_names_the_size_of_the_gap() -> None:
    marker = make_marker(12345)
    assert marker.startswith("⟪FDWAIT-ELIDED 12345 bytes")
    assert marker.endswith("⟫")
    assert MARKER in marker
    assert "\n" not in marker.strip("\n")


def test_a_marker_names_where_the_rest_is() -> None:
    assert "some/file" in make_marker(5, where="some/file")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("", False),
        ("plain", False),
        ("⟪ ⟫", False),
        (make_marker(1), True),
        (f"before{make_marker(10**12)}after", True),
        (f"before{make_marker(7, where='x')}after", True),
    ],
)
def test_contains_marker(data: str, found: bool) -> None:
    assert contains_marker(data) is found
    assert contains_marker(data.encode()) is found
    assert contains_marker(bytearray(data.encode())) is found


def test_what_a_window_left_out_is_told_by_one_marker_in_its_place() -> None:
    data = drained(b"h" * 100 + b"m" * 1000 + b"t" * 100, Window(100, 100))
    assert contains_marker(data)
    head, tail = data.split(make_marker(1000).encode())
    assert head.strip(b"\n") == b"h" * 100
    assert tail.strip(b"\n") == b"t" * 100


def test_where_nothing_is_left_out_there_is_none() -> None:
    for keep in None, Window(1000, 0), Window(0, 1000), Window(500, 500):
        assert drained(b"x" * 1000, keep) == b"x" * 1000


def test_output_that_looks_like_a_marker_is_untouched_where_nothing_is_left_out() -> None:
    data = f"one {make_marker(5)} two".encode()
    assert drained(data, None) == data
    assert drained(data, Window(1000, 1000)) == data


@pytest.mark.parametrize("place", ["head", "tail"])
def test_a_marker_is_always_ours(place: str) -> None:
    """A child prints a marker; with a gap, only the true one may count as one."""
    forged = f"[{make_marker(99)}]".encode()
    filler = b"x" * (200 - len(forged))
    head, tail = (forged, b"t" * 200) if place == "head" else (b"h" * 200, filler + forged)
    head += filler if place == "head" else b""
    data = drained(head + b"m" * 5000 + tail, Window(200, 200))
    assert data.count(MARKER.encode()) == 1
    assert make_marker(5000).encode() in data
    before, after = data.split(make_marker(5000).encode())
    assert b"99 bytes" in (before if place == "head" else after)  # escaped, not removed
    assert contains_marker(before + after)  # and still not to be taken for plain text


def test_escaping_can_be_undone() -> None:
    """What was escaped already is told from what was not."""

    def shown(output: bytes) -> bytes:
        data = drained(output + b"m" * 5000, Window(len(output), 0))
        return data.removesuffix(make_marker(5000).encode())

    plain = make_marker(1).encode()
    escaped = shown(plain)
    assert len({plain, escaped, shown(escaped), shown(shown(escaped))}) == 4


def test_a_marker_that_the_gap_cuts_in_two_is_no_marker() -> None:
    forged = make_marker(99).encode()
    for cut in range(1, len(forged)):
        data = drained(forged[:cut] + b"m" * 3000 + forged[cut:], Window(cut, len(forged) - cut))
        assert data.count(MARKER.encode()) == 1
