"""Starting a process, so that no fork and no signal handler comes in between.

The native layer has both, since an exception that lands between two instructions of Python would leave the one or the
other half done.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import subprocess
import threading
from typing import Any, Final

from fdwait._core import AGAIN, lib

_SIGNALS: Final = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_NEVER: Final = {
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
}  # faults
_CAN_WAIT: Final = [(int(number), 1 << (number - 1)) for number in _SIGNALS if number not in _NEVER]

release_handlers = lib.fdw_handlers_release
end_start = lib.fdw_start_end


def hold_handlers() -> None:
    """Let those wait that are Python's, and might raise, until they are released. They run in the main thread only."""
    lib.fdw_handlers_hold(_handled())


def begin_start() -> None:
    """From here to ``end_start()`` no fork of Python's comes in between, and no signal handler.

    The end may come without the beginning.
    """
    handled = _handled()
    if lib.fdw_start_begin(-1, handled) != AGAIN:
        return
    patience = lib.fdw_start_patience()
    while lib.fdw_start_begin(patience, handled) == AGAIN:
        pass


def _handled() -> int:
    """The signals, as bits, that Python would handle in this thread."""
    if threading.get_ident() != threading.main_thread().ident:
        return 0
    handled = 0
    for number, bit in _CAN_WAIT:
        if callable(_signal.getsignal(number)):  # signal.getsignal() makes an enum of it, which takes its time
            handled |= bit
    return handled


class Child(subprocess.Popen[bytes]):
    """A Popen whose ``preexec_fn`` may take its time: signal handlers wait only until its pid is known.

    From then on an exception leaves no child that nobody can find.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._is_slow = kwargs.get("preexec_fn") is not None
        super().__init__(*args, **kwargs)

    @property
    def pid(self) -> Any:
        return self.__dict__.get("pid")

    @pid.setter
    def pid(self, pid: int | None) -> None:
        self.__dict__["pid"] = pid
        if pid is not None and self._is_slow:
            release_handlers()


os.register_at_fork(before=lib.fdw_fork_begin, after_in_parent=lib.fdw_fork_end)
