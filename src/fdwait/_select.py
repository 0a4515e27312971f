"""select.select() without its ceiling."""

from __future__ import annotations

import errno
import operator
import struct
from typing import TYPE_CHECKING, Any, Final

from fdwait._core import FOREVER, ffi, lib, native

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MASK_BITS: Final = 62
_PLAIN: Final = frozenset({list, tuple})

_look_many = lib.fdw_look_many
# Native ints, a count before them. Unsigned, so that a negative number does not pass.
_pack_counted: Final = [struct.Struct(f"{n + 1}I").pack for n in range(_MASK_BITS + 1)]
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
    OSError(EBADF), never ready.
    """
    seconds = None if timeout is None else _seconds(timeout)
    if (
        not wlist
        and not xlist
        and rlist.__class__ in _PLAIN
        and wlist.__class__ in _PLAIN
        and xlist.__class__ in _PLAIN
    ):
        n = len(rlist)  # type: ignore[arg-type]
        if 0 < n <= _MASK_BITS:
            try:
                mask = _look_many(_pack_counted[n](n, *rlist))
            except struct.error:  # not all of them are plain numbers
                mask = 0
            else:
                if mask == 0 and seconds == 0:
                    return [], [], []
            if mask > 0:
                return _masked(rlist, mask, n), [], []
    return _select(_sequence(rlist), _sequence(wlist), _sequence(xlist), seconds)


def _masked(objects: Iterable[Any], mask: int, n: int) -> list[Any]:
    if mask == (1 << n) - 1:
        return list(objects)
    return [obj for i, obj in enumerate(objects) if mask >> i & 1]


def _select(
    rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], seconds: float | None
) -> tuple[list[Any], list[Any], list[Any]]:
    readers, r = _numbers(rlist)
    writers, w = _numbers(wlist)
    others, x = _numbers(xlist)
    nr, nw, nx = len(readers), len(writers), len(others)
    deadline = FOREVER if seconds is None else lib.fdw_deadline(seconds)
    try:
        selection = _free_selections.pop()
    except IndexError:
        selection = native(lib.fdw_selection_new(), lib.fdw_selection_free)
    while True:  # between two rounds the interpreter runs signal handlers
        count = lib.fdw_select(selection, r, nr, w, nw, x, nx, deadline)
        if count != -errno.EINTR:
            break
    ready = ffi.unpack(lib.fdw_selection_ready(selection), count) if count > 0 else []
    _free_selections.append(selection)
    if count < 0:
        raise _failure(count, readers, writers, others)
    i = j = 0
    if nw or nx:
        i = sum(p < nr for p in ready)
        j = sum(p < nr + nw for p in ready)
    else:
        i = j = count
    return (
        [readers[p] for p in ready[:i]],
        [writers[p - nr] for p in ready[i:j]],
        [others[p - nr - nw] for p in ready[j:]],
    )


def _failure(error: int, *lists: Sequence[Any]) -> Exception:
    if error == -errno.ENOMEM:
        return MemoryError()
    n = sum(map(len, lists))
    return OSError(-error, f"{errno.errorcode[-error]}: one of {n} descriptors given to select() is closed")


def _sequence(objects: Iterable[Any]) -> Sequence[Any]:
    if isinstance(objects, (list, tuple)):
        return objects
    try:
        return list(objects)
    except TypeError:
        raise TypeError("arguments 1-3 must be sequences") from None


def _numbers(objects: Sequence[Any]) -> tuple[Sequence[Any], bytes]:
    """The objects, and their descriptors as native ints."""
    try:
        return objects, struct.pack(f"{len(objects)}I", *objects)
    except struct.error:
        pass
    # The list is walked as it is now: a fileno() may change it.
    seen: list[Any] = []
    numbers: list[int] = []
    for obj in objects:
        numbers.append(_descriptor(obj))
        seen.append(obj)
    return seen, struct.pack(f"{len(numbers)}i", *numbers)


def _descriptor(obj: Any) -> int:
    number = obj
    if not isinstance(obj, int):
        try:
            fileno = obj.fileno
        except AttributeError:
            raise TypeError("argument must be an int, or have a fileno() method.") from None
        number = fileno()
        if not isinstance(number, int):
            raise TypeError("fileno() returned a non-integer")
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    if number > 0x7FFFFFFF:
        raise OverflowError("Python int too large to convert to C int")
    return number


def _seconds(timeout: float) -> float:
    """As CPython reads it: _PyTime_FromSecondsObject in Python/pytime.c."""
    if isinstance(timeout, float):
        seconds = float(timeout)
        if seconds != seconds:
            raise ValueError("Invalid value NaN (not a number)")
    else:
        try:
            seconds = operator.index(timeout)
        except TypeError:
            raise TypeError("timeout must be a float or None") from None
    if seconds < 0:
        raise ValueError("timeout must be non-negative")
    if seconds > 9223372036:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")
    return seconds
