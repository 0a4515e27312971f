"""Feeding: bytes into a descriptor, all of them or a count of how many."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from fdwait._core import deadline_after, descriptor_of, failure, lib
from fdwait._pump import DEADLINE, STOPPED, Feed, Pump

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from fdwait._core import FileDescriptorLike
    from fdwait._stop import Stop

MIB = 1 << 20


def feed(
    fd: FileDescriptorLike,
    data: Buffer | str,
    *,
    timeout: float | None = None,
    block: int = MIB,
    progress: Callable[[int], object] | None = None,
    stop: Stop | None = None,
) -> int:
    """Write all of *data* to *fd*, with the GIL released; how many bytes *fd* took, which is all unless stopped.

    *data* is bytes or another contiguous buffer, written exactly as it is and not copied, or text, which is encoded in
    UTF-8 with surrogateescape. *fd* is a descriptor or an object with ``fileno()``; it is never closed, and its
    O_NONBLOCK never changed, yet it does not sleep in a write: a reader that stops reading cannot hold the call beyond
    *timeout* (docs/feeding.md says how, and what another writer to the same terminal can do).
    A stream with a buffer of its own has to be flushed before.

    *timeout* is the total in seconds; a deadline that is already past still writes what there is room for, up to 1 MiB.
    *progress* is called with the count after each *block* bytes and at the end. *stop* ends the call from
    another thread; the count is then less than the size.

    Errors: TimeoutError; BrokenPipeError where nobody reads any more (SIGPIPE is never raised); another OSError of the
    descriptor (EBADF: closed, also meanwhile; EPROTOTYPE: a socket that keeps packets apart); whatever *progress*
    raises; KeyboardInterrupt. Each has the count as ``exc.taken``. That the descriptor took a byte does not say that
    somebody has read it. Argument errors (TypeError, ValueError) come before the first byte.
    """
    number = descriptor_of(fd)
    if operator.index(block) <= 0:
        raise ValueError(f"block is a positive number of bytes: {block}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is None or callable, not {progress!r:.100}")
    pump = Pump(stop)
    deadline = deadline_after(timeout)
    with as_bytes(data) as view:  # released even where an exception keeps this frame: data may be changed then
        size = len(view)
        flow: Feed | None = None
        try:
            pump.open()
            flow = pump.feed(number, view, size if progress is None else block)
            while True:
                outcome = pump.run(deadline)
                _check(flow, outcome, number, size)
                if progress is not None:
                    progress(flow.taken)
                if outcome == STOPPED or flow.taken == size:
                    return flow.taken
                flow.next(size if lib.fdw_is_past(deadline) else block)
        except BaseException as exc:
            exc.taken = flow.taken if flow else 0  # type: ignore[attr-defined]
            raise
        finally:
            pump.close()


def as_bytes(data: Any) -> memoryview:
    """What *data* holds, as bytes, without a copy but for text."""
    if isinstance(data, str):
        data = data.encode(errors="surrogateescape")
    view = memoryview(data)
    if not view.contiguous:
        raise TypeError("data has to be contiguous in memory: pass bytes(data)")
    return view.cast("B")


def _check(flow: Feed, outcome: int, fd: int, size: int) -> None:
    if flow.error:
        raise failure(-flow.error, "feeding", fd)
    if outcome == DEADLINE:
        raise TimeoutError(f"descriptor {fd} took {flow.taken} of {size} bytes before the time was up")
