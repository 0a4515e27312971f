"""The entry points that wait, as one kind of function: entry(fd, timeout) -> did it see readiness?"""

from __future__ import annotations

from collections.abc import Callable

from support import no_free_descriptor

import fdwait

Entry = Callable[[int, float | None], bool]


def waiter(fd: int, timeout: float | None) -> bool:
    with fdwait.FdWaiter(fd) as w:
        return w.wait(timeout)


def poll_fallback(fd: int, timeout: float | None) -> bool:
    """A waiter that was made while there was no descriptor for an epoll or kqueue."""
    with no_free_descriptor():
        w = fdwait.FdWaiter(fd)
    with w:
        return w.wait(timeout)


def selecting(fd: int, timeout: float | None) -> bool:
    return bool(fdwait.select([fd], [], [], timeout)[0])


def selecting_for_all(fd: int, timeout: float | None) -> bool:
    return any(fdwait.select([fd], [], [fd], timeout))


def draining(fd: int, timeout: float | None) -> bool:
    """One byte at most, so that readiness ends it."""
    return fdwait.drain(fd, timeout=timeout, limit=1).total > 0


# What follows DESIGN's rules for time-outs, and what follows those of select.select().
WAITS: dict[str, Entry] = {
    "FdWaiter": waiter,
    "FdWaiter on poll": poll_fallback,
    "wait_readable": fdwait.wait_readable,
    "drain": draining,
}
SELECTS: dict[str, Entry] = {"select": selecting, "select, 2 lists": selecting_for_all}
ENTRIES = WAITS | SELECTS
