"""Readiness of one descriptor."""

from __future__ import annotations

import errno
import selectors
from typing import TYPE_CHECKING, Final

from fdwait._core import AGAIN, FileDescriptorLike, deadline_after, descriptor_of, failure, ffi, lib, native

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

# Global names, because a wait that finds its descriptor ready costs little more than the looking up of these.
_look = lib.fdw_waiter_look
_look_readable = lib.fdw_look_readable
_look_writable = lib.fdw_look_writable


class FdWaiter:
    """Waits, as often as wanted, until one descriptor is ready.

    ``fd`` is an int, which is borrowed, or an object with ``fileno()``, which is kept alive; it is never
    closed here. ``events`` is READ, WRITE or both (then either is waited for). Ready means what it means to
    select(2): a hang-up and an error make a descriptor readable, an error makes it writable.

    The waiter owns a descriptor of its own (an epoll or a kqueue) until ``close()``; where none is to be had
    it uses poll(2) and takes none. ``backend`` says which: "epoll", "kqueue", "poll", "select", or "always" for
    files that are always ready (regular files, directories, /dev/null).

    Errors: TypeError and ValueError for a bad ``fd`` or ``events``; OSError(EBADF) for a closed descriptor,
    and what the kernel says of one that nothing can wait on.

    Any number of threads may wait on one waiter; all of them wake up.
    """

    __slots__ = ("_closed", "_file", "_native", "events", "fd")

    def __init__(self, fd: FileDescriptorLike, events: int = READ) -> None:
        self._closed = True
        self.fd: Final[int] = descriptor_of(fd)
        self._file = fd  # keeps an object alive, and its descriptor open
        if not isinstance(events, int):
            raise TypeError(f"events must be READ, WRITE or READ | WRITE, not {events!r:.100}")
        if events not in (READ, WRITE, READ | WRITE):
            raise ValueError(f"events must be READ, WRITE or READ | WRITE, not {events!r}")
        self.events: Final[int] = events
        self._native = _open_waiter(self.fd, events, light=False)
        self._closed = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a read (write) will not block. True: it will not. False: the time is up.

        ``timeout`` is in seconds; None and inf wait for ever, 0 and less look once and come back. Never early.
        A closed descriptor is OSError(EBADF), also when its number has been reused by another file, and also
        when that happens during the wait (noticed within 5 s). ValueError when the waiter is closed, also
        from another thread during the wait.
        """
        try:
            is_number = timeout is None or timeout > 0 or timeout <= 0
        except (TypeError, ArithmeticError):
            is_number = False
        if is_number:
            ready = _look(self._native)
            if ready == 1:
                return True
            if ready == 0 and timeout is not None and timeout <= 0:
                return False
        return _wait(self._native, self.fd, deadline_after(timeout))

    def close(self) -> None:
        """End all waits on it, in every thread, and give back what it owns; ``fd`` stays open. Idempotent."""
        self._closed = True
        lib.fdw_waiter_close(self._native)

    @property
    def backend(self) -> str:
        return _text(lib.fdw_waiter_backend(self._native))

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = {READ: "READ", WRITE: "WRITE", READ | WRITE: "READ|WRITE"}
        state = "closed" if self._closed else self.backend
        return f"<FdWaiter fd={self.fd} {names[self.events]} {state}>"


def wait_readable(fd: FileDescriptorLike, timeout: float | None = None) -> bool:
    """Wait until a read of *fd* will not block: FdWaiter for a single wait, without taking a descriptor.

    True: it will not. False: *timeout* seconds are up. Timeouts and errors are those of FdWaiter.wait().
    """
    return _wait_once(descriptor_of(fd), READ, _look_readable, timeout)


def wait_writable(fd: FileDescriptorLike, timeout: float | None = None) -> bool:
    """Wait until a write of a byte to *fd* will not block. Otherwise as wait_readable()."""
    return _wait_once(descriptor_of(fd), WRITE, _look_writable, timeout)


def _wait_once(fd: int, events: int, look: Callable[[int], int], timeout: float | None) -> bool:
    deadline = deadline_after(timeout)
    ready = look(fd)
    if ready == 1:
        return True
    if ready == 0 and deadline == 0:
        return False
    return _wait(_open_waiter(fd, events, light=True), fd, deadline)


def _open_waiter(fd: int, events: int, *, light: bool) -> object:
    waiter = native(lib.fdw_waiter_new(), lib.fdw_waiter_free)
    error = lib.fdw_waiter_open(waiter, fd, events, light)
    if error < 0:
        raise failure(error, "preparing to wait on", fd)
    return waiter


def _wait(waiter: object, fd: int, deadline: int) -> bool:
    while True:  # between two rounds the interpreter runs signal handlers
        outcome = lib.fdw_waiter_wait(waiter, deadline)
        if outcome != AGAIN:
            break
    if outcome >= 0:
        return bool(outcome == lib.FDW_READY)
    if outcome == -errno.ECANCELED:
        raise ValueError(f"wait on a closed FdWaiter (descriptor {fd})")
    raise failure(outcome, "waiting on", fd)


def _text(c_string: object) -> str:
    text: str = ffi.string(c_string).decode()
    return text
