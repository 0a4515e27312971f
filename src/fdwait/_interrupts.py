"""Ctrl-C waits while a child is started.

Between the fork and the moment when Popen has noted its pid, an exception would leave a child that nobody can find. The
time is short: the fork itself returns after the exec.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType


class InterruptsHeld:
    """A context in which SIGINT only notes that it came; its handler runs at the end."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: FrameType | bool | None = False

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            return
        try:
            signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not the main thread: handlers do not run here
            return
        self._handler = handler

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._came = frame

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        if self._came is not False:
            self._handler(signal.SIGINT, self._came)
