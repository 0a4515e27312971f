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
    """Any number of starts, or any number of forks. Each kind lets those of the other go that came before."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread = threading.local()  # a fork in a start of the same thread is that start's own (preexec_fn)
        self._starting = 0
        self._starts_waiting = 0
        self._starts_admitted = 0  # of those that wait: they go before the next fork
        self._forking = 0
        self._forks_waiting = 0

    @contextlib.contextmanager
    def start(self) -> Iterator[None]:
        with self._changed:
            self._starts_waiting += 1
            try:
                self._changed.wait_for(self._start_may_go, PATIENCE)
            finally:
                self._starts_waiting -= 1
                self._starts_admitted = max(0, self._starts_admitted - 1)
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
            self._forks_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._starting and not self._starts_admitted, PATIENCE)
            finally:
                self._forks_waiting -= 1
            self._forking += 1

    def after_fork(self) -> None:
        if getattr(self._thread, "starts", False):
            return
        with self._changed:
            self._forking -= 1
            self._starts_admitted = self._starts_waiting
            self._changed.notify_all()

    def _start_may_go(self) -> bool:
        return not self._forking and bool(not self._forks_waiting or self._starts_admitted)


_starts = Starts()


def starting() -> contextlib.AbstractContextManager[None]:
    """Hold this while a process is started: no fork of Python's comes in between."""
    return _starts.start()


def _start_afresh() -> None:
    global _starts  # noqa: PLW0603 -- in a forked child nobody else starts or forks, and the old lock may be held
    _starts = Starts()


os.register_at_fork(
    before=lambda: _starts.before_fork(),  # noqa: PLW0108 -- looked up when it is called
    after_in_parent=lambda: _starts.after_fork(),  # noqa: PLW0108
    after_in_child=_start_afresh,
)
