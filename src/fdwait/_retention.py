"""What is kept of a long output, and how the gap in it is told.

A gap is told by the marker and by nothing else, and every gap is made here. So that a marker is always ours, the
marker's opening in the output itself gets a backslash, where there is a gap at all; an output that is whole
is never touched.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Final

MARKER: Final = "\N{MATHEMATICAL LEFT DOUBLE ANGLE BRACKET}FDWAIT-ELIDED"
_END: Final = "\N{MATHEMATICAL RIGHT DOUBLE ANGLE BRACKET}"
MARKER_WORD: Final = b"FDWAIT-ELIDED"  # without it in the output there is nothing to escape
_OPENING: Final = re.compile("\N{MATHEMATICAL LEFT DOUBLE ANGLE BRACKET}(\\\\*)FDWAIT-ELIDED".encode())


@dataclass(frozen=True, slots=True)
class Window:
    """Keep the first ``head`` and the last ``tail`` bytes; what is between them is counted.

    The marker that tells of the gap is not counted. ValueError below 0. Memory for ``tail`` is taken at once when
    the head is full.
    """

    head: int
    tail: int

    def __post_init__(self) -> None:
        for name in ("head", "tail"):
            if operator.index(getattr(self, name)) < 0:
                raise ValueError(f"Window: {name} is a number of bytes and cannot be negative")


def make_marker(elided: int, *, where: str | None = None) -> str:
    """The text that stands for *elided* bytes left out; *where* says where they are to be found, if anywhere."""
    if operator.index(elided) < 0:
        raise ValueError("make_marker: a number of bytes cannot be negative")
    unit = "byte" if elided == 1 else "bytes"
    found = f"in {where}" if where else "left out"
    return f"{MARKER} {elided} {unit} {found}{_END}"


def contains_marker(data: bytes | bytearray | memoryview | str) -> bool:
    """Whether *data* holds the opening of a marker, escaped or not."""
    raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    return _OPENING.search(raw) is not None


def join(head: bytes, tail: bytes, elided: int) -> bytes:
    """The one place where a gap is told: *head* and *tail* with a marker between them."""
    if not elided:
        return head + tail if tail else head
    return _escape(head) + make_marker(elided).encode() + _escape(tail)


def join_text(head: str, tail: str, elided: int) -> str:
    """The same for text."""
    before, after = (part.encode(errors="surrogatepass") for part in (head, tail))
    return join(before, after, elided).decode(errors="surrogatepass")


def _escape(part: bytes) -> bytes:
    """One backslash more in every opening, so that it can be undone and is no opening any more."""
    return _OPENING.sub(lambda m: m[0].replace(m[1] + b"FDWAIT", m[1] + b"\\FDWAIT"), part)
