"""Our starts of processes and Python's forks exclude each other.

A worker that os.fork() makes while subprocess.Popen is between making its pipes and the exec has copies of them, for as
long as it lives: the start would wait for an end of file that comes with the worker's exit. Close-on-exec does
not help, as a worker does not exec. Starts may overlap each other: each of them execs.

Neither side waits for ever. Somebody's own fork hook may take a lock that another thread holds while it starts a
command, and then going on after a while is better than not at all.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 2.0  # seconds; starts and forks take milliseconds


class Starts:
    """Any number of starts, or any number of forks."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._starting = 0
        self._forking = 0
        self._thread = threading.local()  # a fork in a start of the same thread is that start's own (preexec_fn)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking, PATIENCE)
            self._starting += 1
        self._thread.starts = True
        try:
            yield
        finally:
            self._thread.starts = False
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        if getattr(self._thread, "starts", False):
            return
        with self._changed:
            self._forking += 1  # from here on no start begins, so that a fork is not kept waiting by many of them
            self._changed.wait_for(lambda: not self._starting, PATIENCE)

    def after_fork(self) -> None:
        if getattr(self._thread, "starts", False):
            return
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._renew()


starting = Starts()
os.register_at_fork(
    before=starting.before_fork,
    after_in_parent=starting.after_fork,
    after_in_child=starting.after_fork_in_child,
)
