"""The engine, as Python holds it: a native pump, what it drains, what it feeds, the process that it watches."""

from __future__ import annotations

import enum
import errno
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fdwait import _retention
from fdwait._core import AGAIN, FOREVER, failure, ffi, lib, native
from fdwait._stop import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE: Final[int] = lib.FDW_DEADLINE
READY: Final[int] = lib.FDW_READY
STOPPED: Final[int] = lib.FDW_STOPPED
NEW_PIPE: Final[int] = lib.FDW_PIPE

_SMALL = 64 << 10


class End(enum.Enum):
    """Why a stream ended. Only EOF means that it is complete."""

    EOF = lib.FDW_END_EOF
    """Every writer has closed it."""
    EXITED = lib.FDW_END_EXITED
    """The process is gone and the stream stayed empty for ``linger`` seconds; somebody else still holds it."""
    EXITED_BUSY = lib.FDW_END_EXITED_BUSY
    """Somebody else was still writing ``linger_cap`` seconds after the exit of the process."""
    TIMEOUT = lib.FDW_END_TIMEOUT
    """The time was up."""
    LIMIT = lib.FDW_END_LIMIT
    """The limit was reached; the end was not seen."""
    STOPPED = lib.FDW_END_STOPPED
    """Stop.set(), or KeyboardInterrupt."""


_ENDS: Final[list[End | None]] = [None, *End]  # by their values


class Pump:
    """Moves bytes in the calling thread, without the GIL. It owns what it opens, and gives it back in ``close()``.

    Making and opening are two steps, so that nothing is lost to an interrupt between them.
    """

    def __init__(self, stop: Stop | None) -> None:
        if stop is not None and not isinstance(stop, Stop):
            raise TypeError(f"stop is None or a Stop, not {stop!r:.100}")
        self._stop = stop  # it must outlive the native pump
        self._native: Any = None
        self._is_ready = False
        self._borrowed: list[Any] = []  # buffers that native feeds write from

    def open(self) -> None:
        self._native = native(lib.fdw_pump_new(), lib.fdw_pump_free)

    def _get_ready(self) -> None:
        """Open what the pump itself needs. Last, since it could get the number of a descriptor that was closed."""
        if not self._is_ready:
            self._check(lib.fdw_pump_open(self._native, self._stop._native if self._stop else ffi.NULL))
            self._is_ready = True

    def source(self, fd: int, keep: _retention.Window | None, limit: int = -1) -> Source:
        """Drain *fd*, or a new pipe."""
        error = ffi.new("int *")
        head, tail = (-1, 0) if keep is None else (min(keep.head, FOREVER), min(keep.tail, FOREVER))
        source = lib.fdw_pump_source(self._native, fd, head, tail, limit, error)
        self._check(error[0], "preparing to drain", fd)
        return Source(source, fd)

    def feed(self, fd: int, data: Any, first: int | None = None) -> Feed:
        """Write *data*, a buffer, to *fd* or to a new pipe; *first* so many bytes of it."""
        error = ffi.new("int *")
        self._borrowed.append(ffi.from_buffer(data))  # in one step, so that an interrupt cannot keep it
        view = self._borrowed[-1]
        size = len(view) if first is None else min(first, len(view))
        feed = lib.fdw_pump_feed(self._native, fd, view, size, error)
        self._check(error[0], "preparing to feed", fd)
        return Feed(feed, fd, view)

    def pass_on(self, source: Source, fd: int) -> Feed:
        """Write to *fd* what *source* takes in, as it comes."""
        error = ffi.new("int *")
        feed = lib.fdw_pump_pass_on(self._native, source.native, fd, error)
        self._check(error[0], "preparing to feed", fd)
        return Feed(feed, fd, None)

    def started(self) -> None:
        """The child is started, and has its ends of the new pipes."""
        lib.fdw_pump_started(self._native)

    def watch(self, pid: int, linger: float, linger_cap: float, *, required: bool) -> None:
        """Notice the exit of *pid* (0: it is gone already). *required*: the work is not done before it."""
        self._get_ready()
        self._check(lib.fdw_pump_child(self._native, pid, linger, linger_cap, required))

    def run(self, deadline: int) -> int:
        """READY, DEADLINE or STOPPED."""
        self._get_ready()
        while True:  # between two rounds the interpreter runs signal handlers
            outcome: int = lib.fdw_pump_run(self._native, deadline)
            if outcome != AGAIN:
                self._check(outcome, "waiting for")
                return outcome

    def signal(self, number: int, *, group: bool) -> int:
        """Send a signal to the watched process or its group, unless somebody reaped it. 0 or -errno."""
        outcome: int = lib.fdw_pump_signal(self._native, number, group)
        return outcome

    def finish(self) -> None:
        """The process is being killed: the next run() takes what it has still written."""
        lib.fdw_pump_finish(self._native)

    def close(self) -> None:
        """Give back what it owns and borrows, although an exception may keep this object for a while. Idempotent."""
        pump, self._native = self._native, None
        try:
            if pump is not None:
                ffi.release(pump)
        finally:  # an interrupt, if there was one, came after the release
            while self._borrowed:
                ffi.release(self._borrowed.pop())

    def _check(self, outcome: int, doing: str = "preparing the pump", fd: int | None = None) -> None:
        if outcome < 0:
            raise failure(outcome, doing, fd)


class Feed:
    """Bytes on their way into a descriptor. It belongs to its pump."""

    def __init__(self, feed: Any, fd: int, data: Any) -> None:
        self.native = feed
        self.fd = fd
        self._data = data  # borrowed by the native feed

    @property
    def peer(self) -> int:
        """The other end of a new pipe, for a child to be started with."""
        end: int = lib.fdw_feed_peer(self.native)
        return end

    def next(self, size: int) -> None:
        """So many bytes more of the data, once all are taken that were given."""
        at = self.taken
        lib.fdw_feed_next(self.native, self._data + at, min(size, len(self._data) - at))

    @property
    def taken(self) -> int:
        """Bytes that the descriptor took."""
        taken: int = lib.fdw_feed_result(self.native).taken
        return taken

    @property
    def last(self) -> int:
        """The last byte that the descriptor took; -1: none."""
        last: int = lib.fdw_feed_result(self.native).last
        return last

    @property
    def read_by_child(self) -> int:
        """The same, less what lies unread in the pipe."""
        fed = lib.fdw_feed_result(self.native)
        count: int = fed.taken - fed.unread
        return count

    @property
    def error(self) -> int:
        """The errno that ended it, or 0."""
        error: int = lib.fdw_feed_result(self.native).error
        return error


class Source:
    """A descriptor that is drained. It belongs to its pump."""

    def __init__(self, source: Any, fd: int) -> None:
        self.native = source
        self.fd = fd
        self._memory: _Memory | None = None

    @property
    def peer(self) -> int:
        """The other end of a new pipe, for a child to be started with."""
        end: int = lib.fdw_source_peer(self.native)
        return end

    def put(self, held: bytes) -> int:
        """Take in bytes that were read before; how many there was room for."""
        put: int = lib.fdw_source_put(self.native, held, len(held))
        return put

    @property
    def end(self) -> End | None:
        end: int = lib.fdw_source_result(self.native).end
        return _ENDS[end]

    def check(self) -> None:
        """Raise the error that ended it, if one did."""
        error: int = lib.fdw_source_result(self.native).error
        if error:
            raise failure(-error, "draining", self.fd)

    def collect(self) -> Collected:
        """What was kept. It can be asked for again, should an exception come between."""
        if self._memory is None:
            result = lib.fdw_source_result(self.native)
            if result.total == 0:
                return Collected(b"", 0, 0, 0, 0, _known(result.left), _ENDS[result.end], escapes=False)
            self._memory = _Memory(result)
        return self._memory.take(self.native)

    def uncollected(self) -> Collected:
        """The figures alone, where there is no memory for the bytes."""
        state = lib.fdw_source_result(self.native)
        return Collected(b"", 0, 0, state.total, state.total, _known(state.left), None, escapes=False)


@dataclass(slots=True)
class Collected:
    """What a source has kept: ``raw`` holds ``head`` bytes, the marker where something was left out, ``tail`` bytes."""

    raw: bytes
    head: int
    tail: int
    total: int
    elided: int
    left: int | None
    end: End | None
    escapes: bool
    """Whether the kept bytes hold what looks like a marker."""

    def data(self) -> bytes:
        return _retention.join(*self._parts(), self.elided) if self.escapes else self.raw

    def text(self, decode: Callable[[bytes], str]) -> str:
        if not self.elided:
            return decode(self.raw)
        head, tail = map(decode, self._parts())
        return _retention.join_text(head, tail, self.elided)

    def _parts(self) -> tuple[bytes, bytes]:
        return self.raw[: self.head], self.raw[len(self.raw) - self.tail :]


class _Memory:
    """Where the kept bytes are copied to, and the figures that go with them, read before the copy.

    A large result is written by the C layer straight into a new bytes object, which nobody else has seen yet: a
    copy made by Python would hold the GIL and take the memory twice. PyPy moves its objects, so there it is
    copied.
    """

    def __init__(self, result: Any) -> None:
        self._end = _ENDS[result.end]
        self._total: int = result.total
        self._head: int = result.head - result.passed
        self._tail: int = result.tail
        self._elided: int = result.elided
        self._left = _known(result.left)
        self._gap = _retention.make_marker(self._elided).encode() if self._elided else b""
        self._size = self._head + len(self._gap) + self._tail
        self._in_place: bytes | None = None
        if self._size > _SMALL and sys.implementation.name == "cpython":
            try:
                self._in_place = bytes(self._size)
            except MemoryError:
                raise MemoryError(f"no memory for {self._size} bytes that were drained: use keep=Window") from None
            self._pointer = ffi.from_buffer("char[]", self._in_place)
        else:
            self._pointer = ffi.new("char[]", self._size)

    def take(self, source: Any) -> Collected:
        lib.fdw_source_take(source, self._pointer, self._gap, len(self._gap))
        raw: bytes = ffi.buffer(self._pointer, self._size)[:] if self._in_place is None else self._in_place
        escapes = bool(self._elided) and (
            self._holds_marker(0, self._head) or self._holds_marker(self._size - self._tail, self._tail)
        )
        return Collected(raw, self._head, self._tail, self._total, self._elided, self._left, self._end, escapes=escapes)

    def _holds_marker(self, at: int, size: int) -> bool:
        word = _retention.MARKER_WORD
        return bool(lib.fdw_contains(self._pointer + at, size, word, len(word)))


def _known(left: int) -> int | None:
    return None if left < 0 else left


def seconds(value: float, name: str) -> float:
    """A span that is not NaN."""
    if math.isnan(value):
        raise ValueError(f"{name} is a number of seconds, not NaN")
    return float(value)


def check_keep(keep: object) -> None:
    if keep is not None and not isinstance(keep, _retention.Window):
        raise TypeError(f"keep is None or a Window, not {keep!r:.100}")


def no_memory(fd: int) -> Exception:
    return failure(-errno.ENOMEM, "draining", fd)
