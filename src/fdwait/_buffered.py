"""Bytes that a buffered stream has read already and not handed out."""

from __future__ import annotations

import io
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class BufferedStream:
    """The buffer of an io.BufferedReader and its like, emptied without a read that could block.

    Its raw stream's ``readinto`` is shadowed meanwhile by one that has nothing to give, so that ``peek()`` tells
    what is held and no more.
    """

    @classmethod
    def of(cls, source: object) -> BufferedStream | None:
        """None where there is no buffer. TypeError for a stream whose buffer cannot be emptied."""
        if isinstance(source, io.TextIOBase) or (hasattr(source, "buffer") and hasattr(source, "encoding")):
            raise TypeError(f"{source!r:.100} is a text stream: pass its .buffer, and decode what comes back")
        if hasattr(source, "peek") and _reads_its_descriptor(getattr(source, "raw", None)):
            return cls(source)
        if isinstance(source, io.IOBase) and not isinstance(source, io.RawIOBase):
            raise TypeError(
                f"{source!r:.100} does not hand out what its descriptor gives, or its buffer cannot be emptied"
            )
        return None

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._held = 0
        self._moved = 0

    def move_to(self, put: Callable[[bytes], int]) -> bool:
        """Give what is held to *put*, which returns how many bytes of it it took; those leave the buffer.

        Whether that was all of it.
        """
        held = self._peek()
        self._held = len(held)
        self._moved = put(held) if held else 0
        self.settle()
        return self._moved == self._held

    @property
    def left(self) -> int:
        """Bytes that stayed in the buffer."""
        return self._held - self._moved

    def settle(self) -> None:
        """Take what was put from the buffer, unless that has been done: an interrupt may come between."""
        if self._moved and len(self._peek()) == self._held:
            self._stream.read(self._moved)

    def _peek(self) -> bytes:
        raw = self._stream.raw
        raw.readinto = _nothing
        try:
            held: bytes = self._stream.peek(1)
        finally:
            del raw.readinto
        return held


def _reads_its_descriptor(raw: object) -> bool:
    """FileIO (it has closefd, also in its Python version) and SocketIO do; others may decompress, say."""
    return hasattr(raw, "closefd") or isinstance(raw, socket.SocketIO)


def _nothing(_: object) -> None:
    """What readinto() answers when it would block."""
