"""Field cases of class UTF8, as far as bytes go: nothing is decoded, nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support import Owner, Task

from fdwait import Window, drain


@pytest.mark.parametrize("text", ["a" * 4095 + "é" * 10_000, "€" * 100_000, "😀" * 50_000])
def test_b146_characters_across_every_boundary(text: str, own: Owner, place: Callable[[int], int]) -> None:
    r, w = own.pipe()
    data = text.encode()

    def write() -> None:
        for at in range(0, len(data), 4097):
            piece = data[at : at + 4097]
            while piece:
                piece = piece[os.write(w, piece) :]
        own.close(w)

    writer = Task(write)
    assert drain(place(r)).data.decode() == text
    writer.result()


@pytest.mark.parametrize("data", [b"abc\xe2\x82", b"\xff\xfe\x00", "Grüße".encode("latin-1"), bytes(range(256)) * 10])
@pytest.mark.parametrize("keep", [None, Window(5000, 5000)])
def test_b148_bytes_that_are_no_text(data: bytes, keep: Window | None, own: Owner) -> None:
    r, w = own.pipe()
    os.write(w, data)
    own.close(w)
    assert drain(r, keep=keep).data == data
