"""Helpers for tests of run(): whether a process is there, and a process group to be ended with all in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from support import watch_exit


def is_there(pid: int) -> bool:
    """Whether the number is in use, be it by a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_ended(pid: int) -> None:
    """Of somebody else's process, which may be gone already."""
    with contextlib.suppress(ProcessLookupError), watch_exit(pid) as ended:
        ended()


def assert_no_child() -> None:
    """This process has no child, neither a living one nor a zombie."""
    try:
        left = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    raise AssertionError(f"a child is left: {left}")


@contextlib.contextmanager
def a_group() -> Iterator[int]:
    """A process group, for run(process_group=...): whoever is still in it at the end is killed."""
    with subprocess.Popen(["sleep", "300"], process_group=0) as leader:
        try:
            yield leader.pid
        finally:
            os.killpg(leader.pid, signal.SIGKILL)
