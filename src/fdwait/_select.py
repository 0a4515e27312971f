"""select.select() without its ceiling."""

from __future__ import annotations

import errno
import functools
import math
import operator
import os
import struct
from typing import TYPE_CHECKING, Any, Final

from fdwait._core import FOREVER, ffi, lib, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MASK_BITS: Final[int] = lib.FDW_LOOK_MANY
_INT_MAX: Final = 0x7FFFFFFF
_TIME_MAX: Final = 9223372036  # seconds that a count of nanoseconds in 64 bits can hold
_NUMBERS: Final = frozenset({int, float})
_ALL: Final = [(1 << n) - 1 for n in range(_MASK_BITS + 1)]

_look_readable = lib.fdw_look_readable
_look_many = lib.fdw_look_many
_fdw_select = lib.fdw_select
_unpack = ffi.unpack


@functools.lru_cache(maxsize=256)
def _packer(n: int) -> Callable[..., bytes]:
    """Packs three counts and *n* descriptors as native ints."""
    return struct.Struct(f"{3 + n}i").pack


_pack_small: Final = [_packer(n) for n in range(_MASK_BITS + 1)]
# Scratch memory of calls that are over. A call under way has its own, so that a signal handler may select too.
_free_selections: Final[list[Any]] = []


def select(
    rlist: Iterable[Any], wlist: Iterable[Any], xlist: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """select.select() for any descriptor numbers and any number of them.

    Arguments, results and exceptions are those of select.select(): three iterables of ints or of objects with
    ``fileno()``; *timeout* in seconds, None for ever, ValueError below 0 and OverflowError for inf. The lists that
    come back hold the caller's own objects, in the caller's order, duplicates included.

    There is no ValueError for a number beyond 1023, and a descriptor that is closed is always
    OSError(EBADF), never ready. What has an ``__index__()`` counts as an int here.
    """
    if timeout is not None and not (timeout.__class__ in _NUMBERS and 0 <= timeout <= _TIME_MAX):
        timeout = _seconds(timeout)
    # A look at one descriptor, or a few, is the common case, and costs as much as the steps to it in Python.
    if type(rlist) is list and type(wlist) is list and type(xlist) is list:
        if len(rlist) == 1 and not wlist and not xlist:
            fd = rlist[0]
            if type(fd) is int and 0 <= fd <= _INT_MAX:
                ready = _look_readable(fd)
                if ready == 1:
                    return [fd], [], []
                if ready == 0 and timeout == 0:
                    return [], [], []
        return _select_lists(rlist, wlist, xlist, timeout)
    return _select(*_numbers(_sequence(rlist), _sequence(wlist), _sequence(xlist)), timeout)


def _select_lists(
    rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None
) -> tuple[list[Any], list[Any], list[Any]]:
    # Copies, since another thread or a signal handler may change the caller's lists during the wait.
    readers, writers, others = rlist[:], wlist[:], xlist[:]
    nr, nw, nx = len(readers), len(writers), len(others)
    n = nr + nw + nx
    try:
        ints = (_pack_small[n] if n <= _MASK_BITS else _packer(n))(nr, nw, nx, *readers, *writers, *others)
    except struct.error:  # not all of them are ints
        return _select(*_numbers(rlist, wlist, xlist), timeout)
    if n <= _MASK_BITS:
        mask = _look_many(ints)
        if mask > 0:
            return (
                _masked(readers, mask & _ALL[nr]),
                _masked(writers, mask >> nr & _ALL[nw]) if nw else [],
                _masked(others, mask >> nr + nw) if nx else [],
            )
        if mask == 0 and timeout == 0:
            return [], [], []
    return _select(readers, writers, others, ints, timeout)


def _masked(objects: Sequence[Any], mask: int) -> list[Any]:
    ready = []
    while mask:
        lowest = mask & -mask
        ready.append(objects[lowest.bit_length() - 1])
        mask ^= lowest
    return ready


def _select(
    rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], ints: bytes, timeout: float | None
) -> tuple[list[Any], list[Any], list[Any]]:
    deadline = FOREVER if timeout is None else lib.fdw_deadline(timeout)
    try:
        selection = _free_selections.pop()
    except IndexError:
        selection = native(lib.fdw_selection_new(), lib.fdw_selection_free)
    while True:  # between two rounds the interpreter runs signal handlers
        count = _fdw_select(selection, ints, deadline)
        if count != -errno.EINTR:
            break
    ready = _unpack(selection.ready, 3 + count) if count > 0 else [0, 0, 0]
    _free_selections.append(selection)
    if count < 0:
        raise _failure(count, rlist, wlist, xlist)
    readers = 3 + ready[0]
    writers = readers + ready[1]
    return (
        list(map(rlist.__getitem__, ready[3:readers])),
        list(map(wlist.__getitem__, ready[readers:writers])) if wlist else [],
        list(map(xlist.__getitem__, ready[writers:])) if xlist else [],
    )


def _failure(error: int, *lists: Sequence[Any]) -> Exception:
    if error == -errno.ENOMEM:
        return MemoryError("out of memory in select()")
    numbers = [_descriptor(obj) for objects in lists for obj in objects]  # or the error that one of them is
    closed = ", ".join(str(fd) for fd in dict.fromkeys(numbers) if not _is_open(fd))
    return OSError(-error, f"{os.strerror(-error)} in select(): closed: {closed or 'one of them, for a moment'}")


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as exc:
        return exc.errno != errno.EBADF
    return True


def _sequence(objects: Iterable[Any]) -> Sequence[Any]:
    if isinstance(objects, (list, tuple)):
        return objects
    try:
        return list(objects)
    except TypeError:
        raise TypeError("arguments 1-3 must be sequences") from None


def _numbers(*lists: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], bytes]:
    """The lists as they were when each fileno() was asked, since that may change them, and their descriptors."""
    seen: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    numbers: list[int] = []
    for objects, kept in zip(lists, seen, strict=True):
        for obj in objects:
            numbers.append(_descriptor(obj))
            kept.append(obj)
    return *seen, _packer(len(numbers))(*map(len, seen), *numbers)


def _descriptor(obj: Any) -> int:
    number = obj
    if hasattr(type(obj), "__index__"):
        number = operator.index(obj)
    else:
        try:
            fileno = obj.fileno
        except AttributeError:
            raise TypeError("argument must be an int, or have a fileno() method.") from None
        number = fileno()
        if not isinstance(number, int):
            raise TypeError("fileno() returned a non-integer")
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    if number > _INT_MAX:
        raise OverflowError("Python int too large to convert to C int")
    return int(number)


def _seconds(timeout: float) -> float:
    """As CPython reads it: _PyTime_FromSecondsObject in Python/pytime.c."""
    if isinstance(timeout, float):
        seconds = float(timeout)
        if math.isnan(seconds):
            raise ValueError("Invalid value NaN (not a number)")
    else:
        try:
            seconds = operator.index(timeout)
        except TypeError:
            raise TypeError("timeout must be a float or None") from None
    if abs(seconds) > _TIME_MAX:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")
    if seconds < 0:
        raise ValueError("timeout must be non-negative")
    return seconds
