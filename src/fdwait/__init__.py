"""Waits on file descriptors and moves their bytes: no ceiling at 1024, nothing lost in silence, no GIL."""

from fdwait._drain import Drained, drain
from fdwait._feed import feed
from fdwait._info import info
from fdwait._pump import End
from fdwait._retention import MARKER, Window, contains_marker, make_marker
from fdwait._run import Completed, run
from fdwait._select import select
from fdwait._stop import Stop
from fdwait._waiter import READ, WRITE, FdWaiter, wait_readable, wait_writable

__all__ = [
    "MARKER",
    "READ",
    "WRITE",
    "Completed",
    "Drained",
    "End",
    "FdWaiter",
    "Stop",
    "Window",
    "contains_marker",
    "drain",
    "feed",
    "info",
    "make_marker",
    "run",
    "select",
    "wait_readable",
    "wait_writable",
]
