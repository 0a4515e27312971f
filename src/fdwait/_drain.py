"""Draining: everything a descriptor has to give, and why it ended."""

from __future__ import annotations

import enum
import errno
import math
import operator
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from fdwait import _retention
from fdwait._buffered import BufferedStream
from fdwait._core import AGAIN, FOREVER, deadline_after, descriptor_of, failure, ffi, lib, native
from fdwait._stop import Stop

if TYPE_CHECKING:
    from fdwait._core import FileDescriptorLike

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


@dataclass(frozen=True, slots=True, repr=False)
class Drained:
    """What was drained. total = kept + elided."""

    data: bytes
    """What was kept; where something was left out, the head, a marker and the tail."""
    end: End | None
    """Why it ended; None after an error."""
    total: int
    """Bytes that were read."""
    kept: int
    """Bytes of them in ``data``, the marker not counted."""
    elided: int
    """Bytes of them that were left out."""
    left: int | None
    """Bytes still in the descriptor at an early end (0 at EOF); None where the kernel cannot tell."""

    def __repr__(self) -> str:
        end = self.end.name if self.end else "error"
        elided = f", {self.elided} elided" if self.elided else ""
        left = f", {self.left} left" if self.left else ""
        return f"<Drained {end}: {self.total} bytes{elided}{left}>"


class Process(Protocol):
    """What drain() asks of a process: subprocess.Popen and its like."""

    @property
    def pid(self) -> int: ...


def drain(
    source: FileDescriptorLike,
    *,
    process: Process | int | None = None,
    timeout: float | None = None,
    limit: int | None = None,
    linger: float = 0.3,
    linger_cap: float = 5.0,
    keep: _retention.Window | None = None,
    stop: Stop | None = None,
) -> Drained:
    """Read *source* until its end, with the GIL released, and say why it ended.

    *source* is a descriptor, an object with ``fileno()``, or a buffered binary stream, whose own buffer is
    emptied first; a text stream is TypeError. It is never closed, and its O_NONBLOCK never changed.

    *process* (a Popen or its like, or a pid) is whoever writes to *source*. Once it has exited, a stream that
    stays empty for *linger* seconds ends as EXITED although another process still holds it, and one that does
    not become quiet ends as EXITED_BUSY *linger_cap* seconds after the exit. The process is not reaped.

    *timeout* is the total in seconds; a deadline that is already past still takes what is there, up to one
    pipe's worth. *limit* is how many bytes to read: no byte more. *keep* is what to hold of them: None for all,
    or a Window. *stop* ends the call from another thread.

    Errors: OSError of the descriptor (EBADF: closed, also while it is drained; EPROTOTYPE: a socket that
    keeps packets apart is no stream), MemoryError. These, and
    KeyboardInterrupt, carry what was read as ``exc.drained``; the rest is still in the descriptor, and another
    call goes on from there. Argument errors (TypeError, ValueError) come before anything is read.
    """
    drainage = _Drainage(
        source, process=process, limit=limit, linger=linger, linger_cap=linger_cap, keep=keep, stop=stop
    )
    deadline = deadline_after(timeout)
    try:
        drainage.open()
        drainage.run(deadline)
        result = drainage.result()
        drainage.close()
    except BaseException as exc:  # an interrupt may come anywhere, also after the result was there
        drainage.note(exc)
        drainage.close()
        raise
    return result


class _Drainage:
    """One call of drain(): its pump, its one source, and what came of it."""

    def __init__(
        self,
        source: FileDescriptorLike,
        *,
        process: Process | int | None,
        limit: int | None,
        linger: float,
        linger_cap: float,
        keep: _retention.Window | None,
        stop: Stop | None,
    ) -> None:
        if keep is not None and not isinstance(keep, _retention.Window):
            raise TypeError(f"keep is None or a Window, not {keep!r:.100}")
        if stop is not None and not isinstance(stop, Stop):
            raise TypeError(f"stop is None or a Stop, not {stop!r:.100}")
        self._stream = None if isinstance(source, int) else BufferedStream.of(source)
        self._file = source  # keeps an object alive, and its descriptor open
        self._fd = descriptor_of(source)
        self._limit = -1 if limit is None else _count(limit)
        self._keep = (-1, 0) if keep is None else (min(keep.head, FOREVER), min(keep.tail, FOREVER))
        self._pid = _pid_of(process)
        self._linger = _seconds(linger, "linger")
        self._linger_cap = _seconds(linger_cap, "linger_cap")
        self._stop = stop
        self._pump: Any = None
        self._source: Any = None
        self._memory: Any = None
        self._result: Drained | None = None

    def open(self) -> None:
        error = ffi.new("int *")
        self._pump = native(lib.fdw_pump_new(), lib.fdw_pump_free)
        self._check(lib.fdw_pump_open(self._pump, self._stop._native if self._stop else ffi.NULL))
        source = lib.fdw_pump_source(self._pump, self._fd, *self._keep, self._limit, error)
        if source == ffi.NULL:
            self._check(error[0])
        self._source = source
        if self._stream:
            whole = self._stream.move_to(self._put)
            if not whole and not lib.fdw_source_result(source).end:
                raise failure(-errno.ENOMEM, "draining", self._fd)
        if self._pid is not None:
            self._check(lib.fdw_pump_child(self._pump, self._pid, self._linger, self._linger_cap))

    def _check(self, outcome: int) -> None:
        if outcome < 0:
            raise failure(outcome, "preparing to drain", self._fd)

    def _put(self, held: bytes) -> int:
        put: int = lib.fdw_source_put(self._source, held, len(held))
        return put

    def run(self, deadline: int) -> None:
        while True:  # between two rounds the interpreter runs signal handlers
            outcome = lib.fdw_pump_run(self._pump, deadline)
            if outcome != AGAIN:
                break
        error = outcome if outcome < 0 else -lib.fdw_source_result(self._source).error
        if error:
            raise failure(error, "draining", self._fd)

    def note(self, exc: BaseException) -> None:
        """Let an exception carry what was read before it."""
        if self._stream and self._source:
            self._stream.settle()
        try:
            drained = self.result()
        except MemoryError:  # what was read cannot be handed over: then at least say how much that was
            state = lib.fdw_source_result(self._source)
            drained = Drained(b"", None, state.total, 0, state.total, None if state.left < 0 else state.left)
        if isinstance(exc, KeyboardInterrupt):
            drained = replace(drained, end=End.STOPPED)
        exc.drained = drained  # type: ignore[attr-defined]

    def close(self) -> None:
        """Give back what the pump owns, although an exception may keep this object for a while."""
        pump, self._pump, self._source = self._pump, None, None
        if pump is not None:
            ffi.release(pump)

    def result(self) -> Drained:
        """Everything that was read. It can be asked for again, should an exception come between."""
        if self._result:
            return self._result
        if not self._source:
            return Drained(b"", None, 0, 0, 0, None)
        if self._memory is None:
            self._memory = _Memory(lib.fdw_source_result(self._source))
        memory = self._memory
        left = memory.left
        if left is not None and self._stream:
            left += self._stream.left
        kept = memory.head + memory.tail
        self._result = Drained(memory.take(self._source), memory.end, memory.total, kept, memory.elided, left)
        return self._result


class _Memory:
    """Where the kept bytes are copied to, and the figures that go with them, read before the copy.

    A large result is written by the C layer straight into a new bytes object, which nobody else has seen yet: a
    copy made by Python would hold the GIL and take the memory twice. PyPy moves its objects, so there it is
    copied.
    """

    def __init__(self, result: Any) -> None:
        self.end = End(result.end) if result.end else None
        self.total: int = result.total
        self.head: int = result.head
        self.tail: int = result.tail
        self.elided: int = result.elided
        self.left: int | None = None if result.left < 0 else result.left
        self._gap = _retention.make_marker(self.elided).encode() if self.elided else b""
        self._size = self.head + len(self._gap) + self.tail
        self._in_place: bytes | None = None
        if self._size > _SMALL and sys.implementation.name == "cpython":
            try:
                self._in_place = bytes(self._size)
            except MemoryError:
                raise MemoryError(f"no memory for {self._size} bytes that were drained: use keep=Window") from None
            self._pointer = ffi.from_buffer("char[]", self._in_place)
        else:
            self._pointer = ffi.new("char[]", self._size)

    def take(self, source: Any) -> bytes:
        lib.fdw_source_take(source, self._pointer, self._gap, len(self._gap))
        data: bytes = ffi.buffer(self._pointer, self._size)[:] if self._in_place is None else self._in_place
        tail_at = self._size - self.tail
        if self.elided and (self._holds_marker(0, self.head) or self._holds_marker(tail_at, self.tail)):
            return _retention.join(data[: self.head], data[tail_at:], self.elided)
        return data

    def _holds_marker(self, at: int, size: int) -> bool:
        word = _retention.MARKER_WORD
        return bool(lib.fdw_contains(self._pointer + at, size, word, len(word)))


def _count(limit: int) -> int:
    n = operator.index(limit)
    if n < 0:
        raise ValueError(f"limit is a number of bytes and cannot be negative: {n}")
    return min(n, FOREVER)


def _seconds(value: float, name: str) -> float:
    if math.isnan(value):
        raise ValueError(f"{name} is a number of seconds, not NaN")
    return float(value)


def _pid_of(process: Process | int | None) -> int | None:
    """The pid to watch; 0 for a process that is known to be gone; None for no process."""
    if process is None:
        return None
    if getattr(process, "returncode", None) is not None:
        return 0
    pid = process if isinstance(process, int) else getattr(process, "pid", None)
    if not isinstance(pid, int):
        raise TypeError(f"process is a Popen or its like, or a pid, not {process!r:.100}")
    if pid <= 0:
        raise ValueError(f"a pid is positive: {pid}")
    return pid
