"""Ending a call from another thread."""

from __future__ import annotations

from fdwait._core import lib, native


class Stop:
    """Ends drain(), feed() and run() from another thread: they come back with End.STOPPED and what they have.

    One Stop may be given to any number of calls, at once or one after the other. It stays set until
    ``clear()``: a call that begins after ``set()`` ends at once, so none is missed. It owns no descriptor.
    """

    __slots__ = ("_native",)

    def __init__(self) -> None:
        self._native = native(lib.fdw_stop_new(), lib.fdw_stop_free)

    def set(self) -> None:
        """End every call that was given this Stop, now and until ``clear()``."""
        lib.fdw_stop_set(self._native)

    def clear(self) -> None:
        """Let later calls run. Calls that were under way at ``set()`` end all the same."""
        lib.fdw_stop_clear(self._native)

    def is_set(self) -> bool:
        return bool(lib.fdw_stop_is_set(self._native))

    def __repr__(self) -> str:
        return f"<Stop {'set' if self.is_set() else 'clear'}>"
