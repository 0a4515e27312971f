"""Starting a process, so that no fork and no signal handler comes in between.

The native layer has both, since an exception that lands between two instructions of Python would leave the one or the
other half done.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from fdwait._core import AGAIN, lib

hold_handlers = lib.fdw_handlers_hold
release_handlers = lib.fdw_handlers_release
end_start = lib.fdw_start_end


def begin_start() -> None:
    """No fork of Python's comes in between from here to ``end_start()``, which may come without it, too."""
    patience = lib.fdw_start_patience()
    while lib.fdw_start_begin(patience) == AGAIN:
        pass


class Child(subprocess.Popen[bytes]):
    """A Popen that can be started while signal handlers are held: they are released as soon as its pid is known.

    After that an exception leaves no child that nobody can find; and ``preexec_fn`` may take its time.
    """

    @property
    def pid(self) -> Any:
        return self.__dict__.get("pid")

    @pid.setter
    def pid(self, pid: int | None) -> None:
        self.__dict__["pid"] = pid
        if pid is not None:
            release_handlers()


os.register_at_fork(before=lib.fdw_fork_begin, after_in_parent=lib.fdw_fork_end)
