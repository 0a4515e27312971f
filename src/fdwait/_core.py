"""What every module needs of the C layer: deadlines, descriptor numbers, errors, the main thread."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any, Final, Protocol, TypeAlias

from fdwait._native import ffi, lib

__all__ = [
    "AGAIN",
    "FileDescriptorLike",
    "deadline_after",
    "descriptor_of",
    "failure",
    "ffi",
    "lib",
    "native",
]

AGAIN: Final[int] = lib.FDW_AGAIN
FOREVER: Final[int] = lib.FDW_FOREVER


class HasFileno(Protocol):
    """Anything with a fileno() method."""

    def fileno(self) -> int: ...


FileDescriptorLike: TypeAlias = int | HasFileno


def descriptor_of(fd: FileDescriptorLike) -> int:
    """The number of *fd*: TypeError if it has none, ValueError if it is negative."""
    number: object = fd
    if not isinstance(fd, int):
        fileno = getattr(fd, "fileno", None)
        if fileno is None:
            raise TypeError(f"expected a file descriptor (int) or an object with fileno(), not {fd!r:.100}")
        number = fileno()
        if not isinstance(number, int):
            raise TypeError(f"fileno() of {fd!r:.100} returned {number!r:.100}, not an int")
    assert isinstance(number, int)
    if number < 0:
        raise ValueError(f"a file descriptor cannot be negative: {number}")
    return number


def deadline_after(timeout: float | None) -> int:
    """The absolute deadline, in nanoseconds of the monotonic clock, *timeout* seconds from now."""
    if timeout is None:
        return FOREVER
    try:
        deadline: int = lib.fdw_deadline(timeout)
    except TypeError:
        kind = type(timeout).__name__
        raise TypeError(f"a timeout is seconds as int or float, or None, not {kind}") from None
    if deadline < 0:
        raise ValueError("a timeout cannot be NaN")
    return deadline


def failure(error: int, doing: str, fd: int | None) -> Exception:
    """The exception for -errno *error* of the C layer; *fd* is None, or negative, where no number says more."""
    what = doing if fd is None or fd < 0 else f"{doing} descriptor {fd}"
    if error == -errno.ENOMEM:
        return MemoryError(f"out of memory while {what}")
    text = f"{os.strerror(-error)} while {what}"
    if error == -errno.EBADF:
        text += ": it is closed, not open in this direction, or its number belongs to another file now"
    elif error == -errno.EPROTOTYPE:
        text += ": it keeps packets apart and is no stream; receive them one by one"
    return OSError(-error, text)


def native(pointer: Any, free: Any) -> Any:
    """*pointer*, freed with its last reference; MemoryError for NULL."""
    if pointer == ffi.NULL:
        raise MemoryError
    return ffi.gc(pointer, free)


def _this_is_the_main_thread() -> None:
    lib.fdw_main_thread(threading.get_ident())


def _set_up() -> None:
    lib.fdw_main_thread(threading.main_thread().ident or 0)
    os.register_at_fork(after_in_child=_this_is_the_main_thread)
    forced = os.environ.get("FDWAIT_BACKEND")
    if forced and lib.fdw_force_backend(forced.encode()) < 0:
        raise ImportError(f"FDWAIT_BACKEND={forced}: this build has no such backend")


_set_up()
