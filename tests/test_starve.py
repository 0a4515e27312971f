"""Field cases of class STARVE: endless output, and many at once."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from support import SLACK, Owner, Task, lasts, prints_pattern, stretch

import fdwait
from fdwait import End, Stop, Window, drain

Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


def test_b173_an_endless_stream_ends_in_time(start: Start, own: Owner) -> None:
    _, out = start(prints_pattern(), own.up)
    for keep, seconds in (Window(1000, 1000), 1), (None, 0.1):
        with lasts(seconds, 0.3):
            result = drain(out, timeout=seconds, keep=keep)
        assert result.end is End.TIMEOUT
        assert result.total > 1_000_000


def test_b173_or_by_a_stop_or_a_limit(start: Start, own: Owner) -> None:
    _, out = start(prints_pattern(), own.up)
    stop = Stop()
    setter = Task(lambda: (stop.set(), time.monotonic())[1], delay=0.2)
    result = drain(out, stop=stop, keep=Window(0, 0))
    assert time.monotonic() - setter.result() < 0.3 * SLACK
    assert result.end is End.STOPPED
    limited = drain(out, limit=10_000_019)
    assert limited.end is End.LIMIT
    assert limited.data == stretch(result.total, 10_000_019)


def test_b175_the_ends_of_many_children_are_noticed_as_they_come(start: Start, own: Owner) -> None:
    starting = time.monotonic()
    ends, waiting = {}, []
    for i in range(64):
        _, out = start(["sleep", f"{i / 64:.3f}"])
        ends[out] = time.monotonic() + i / 64
        waiting.append(out)
    started = time.monotonic() - starting
    late = []
    with lasts(0, 1.5 + started):
        while waiting:
            ready, _, _ = fdwait.select(waiting, [], [], 60)
            for fd in ready:
                late.append(time.monotonic() - ends[fd])
                waiting.remove(fd)
    # When all were started some may have ended already: only those later on can be timed.
    assert max(late) < 0.2 * SLACK + started
    assert len(late) == 64
