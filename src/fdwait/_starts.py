"""Our starts of processes and Python's forks exclude each other.

A worker that os.fork() makes while subprocess.Popen is between making its pipes and the exec has copies of them, for as
long as it lives: the start would wait for an end of file that comes with the worker's exit. Close-on-exec does
not help, as a worker does not exec. Starts may overlap each other: each of them execs.

Neither side waits for ever. Somebody's own fork hook may take a lock that another thread holds while it starts a
command, and then going on after a while is better than not at all.
"""

from __future__ import annotations

import os
import threading
from typing import Final

PATIENCE: Final = 2.0  # seconds; starts and forks take milliseconds


class Starts:
    """Any number of starts, or any number of forks. Each kind lets those of the other go that came before."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._starting: set[int] = set()  # threads
        self._starts_waiting = 0
        self._starts_admitted = 0  # of those that wait: they go before the next fork
        self._forking = 0
        self._forks_waiting = 0

    def __enter__(self) -> None:
        """A start begins."""
        with self._changed:
            if not self._start_may_go():
                self._wait_to_start()
            self._starting.add(threading.get_ident())

    def _wait_to_start(self) -> None:
        self._starts_waiting += 1
        try:
            self._changed.wait_for(self._start_may_go, PATIENCE)
        finally:
            self._starts_waiting -= 1
            self._starts_admitted = max(0, self._starts_admitted - 1)

    def __exit__(self, *_: object) -> None:
        if self is not _starts:  # in a child that was forked in the start: the lock may be held for ever
            return
        with self._changed:
            self._starting.discard(threading.get_ident())
            if self._forks_waiting:
                self._changed.notify_all()

    def before_fork(self) -> None:
        if threading.get_ident() in self._starting:  # that fork is part of the start: preexec_fn
            return
        with self._changed:
            self._forks_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._starting and not self._starts_admitted, PATIENCE)
            finally:  # also after an interrupt: the interpreter reports it and forks all the same
                self._forks_waiting -= 1
                self._forking += 1

    def after_fork(self) -> None:
        if threading.get_ident() in self._starting:
            return
        with self._changed:
            self._forking -= 1
            self._starts_admitted = self._starts_waiting
            self._changed.notify_all()

    def _start_may_go(self) -> bool:
        return not self._forking and bool(not self._forks_waiting or self._starts_admitted)


_starts = Starts()


def starting() -> Starts:
    """Enter this to start a process: no fork of Python's comes in between."""
    return _starts


def _start_afresh() -> None:
    global _starts  # noqa: PLW0603 -- in a forked child nobody else starts or forks, and the old lock may be held
    _starts = Starts()


os.register_at_fork(
    before=lambda: _starts.before_fork(),  # noqa: PLW0108 -- looked up when it is called
    after_in_parent=lambda: _starts.after_fork(),  # noqa: PLW0108
    after_in_child=_start_afresh,
)
