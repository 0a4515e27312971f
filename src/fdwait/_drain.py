"""Draining: everything a descriptor has to give, and why it ended."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from fdwait._buffered import BufferedStream
from fdwait._core import FOREVER, deadline_after, descriptor_of
from fdwait._pump import Collected, End, Pump, Source, check_keep, no_memory, seconds

if TYPE_CHECKING:
    from fdwait._core import FileDescriptorLike
    from fdwait._retention import Window
    from fdwait._stop import Stop

LINGER: Final = 0.3
LINGER_CAP: Final = 5.0


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

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them: the end by its name, bytes as UTF-8 with ``\\xNN`` for what is none."""
        return {
            "data": printable(self.data),
            "end": self.end.name if self.end else None,
            "total": self.total,
            "kept": self.kept,
            "elided": self.elided,
            "left": self.left,
        }


def printable(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


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
    linger: float = LINGER,
    linger_cap: float = LINGER_CAP,
    keep: Window | None = None,
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
        keep: Window | None,
        stop: Stop | None,
    ) -> None:
        check_keep(keep)
        self._pump = Pump(stop)
        self._stream = None if isinstance(source, int) else BufferedStream.of(source)
        self._file = source  # keeps an object alive, and its descriptor open
        self._fd = descriptor_of(source)
        self._limit = -1 if limit is None else _count(limit)
        self._keep = keep
        self._pid = _pid_of(process)
        self._linger = seconds(linger, "linger")
        self._linger_cap = seconds(linger_cap, "linger_cap")
        self._source: Source | None = None
        self._result: Drained | None = None

    def open(self) -> None:
        self._pump.open()
        self._source = source = self._pump.source(self._fd, self._keep, self._limit)
        if self._stream and not self._stream.move_to(source.put) and not source.end:
            raise no_memory(self._fd)
        if self._pid is not None:
            self._pump.watch(self._pid, self._linger, self._linger_cap, required=False)

    def run(self, deadline: int) -> None:
        assert self._source
        self._pump.run(deadline)
        self._source.check()

    def note(self, exc: BaseException) -> None:
        """Let an exception carry what was read before it."""
        if self._stream and self._source:
            self._stream.settle()
        try:
            drained = self.result()
        except MemoryError:  # what was read cannot be handed over: then at least say how much that was
            assert self._source
            drained = self._drained(self._source.uncollected())
        if isinstance(exc, KeyboardInterrupt):
            drained = replace(drained, end=End.STOPPED)
        exc.drained = drained  # type: ignore[attr-defined]

    def close(self) -> None:
        self._source = None
        self._pump.close()

    def result(self) -> Drained:
        """Everything that was read. It can be asked for again, should an exception come between."""
        if not self._result:
            if not self._source:
                return Drained(b"", None, 0, 0, 0, None)
            self._result = self._drained(self._source.collect())
        return self._result

    def _drained(self, what: Collected) -> Drained:
        left = what.left
        if left is not None and self._stream:
            left += self._stream.left
        return Drained(what.data(), what.end, what.total, what.total - what.elided, what.elided, left)


def _count(limit: int) -> int:
    n = operator.index(limit)
    if n < 0:
        raise ValueError(f"limit is a number of bytes and cannot be negative: {n}")
    return min(n, FOREVER)


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
