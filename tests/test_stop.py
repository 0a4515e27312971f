"""Stop: ends a drain from another thread, and can be used again."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable

import pytest
from support import (
    Owner,
    Task,
    cpu_below,
    descriptors,
    lasts,
    let_it_sleep,
    no_free_descriptor,
    prints_pattern,
    stretch,
)

from fdwait import End, Stop, Window, drain

Pipe = tuple[int, int]


@pytest.fixture
def pipe(high_pipe: Pipe) -> Pipe:
    return high_pipe


def test_set_is_set_clear() -> None:
    stop = Stop()
    assert stop.is_set() is False
    stop.set()
    stop.set()
    assert stop.is_set() is True
    stop.clear()
    stop.clear()
    assert stop.is_set() is False


@pytest.mark.parametrize("descriptors_left", [True, False])
def test_ends_a_silent_drain(descriptors_left: bool, pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"some")
    stop = Stop()
    with contextlib.nullcontext() if descriptors_left else no_free_descriptor():
        draining = Task(drain, r, stop=stop)
        let_it_sleep()
        with lasts(0, 0.3):
            stop.set()
            result = draining.result()
    assert (result.data, result.end) == (b"some", End.STOPPED)
    os.write(w, b"more")
    assert drain(r, limit=4).data == b"more"


def test_ends_a_flood_and_loses_nothing(start: Callable[..., tuple[object, int]]) -> None:
    _, out = start(prints_pattern())
    stop = Stop()
    at = 0
    for _ in range(3):
        draining = Task(drain, out, stop=stop)
        let_it_sleep()
        with lasts(0, 0.3):
            stop.set()
            result = draining.result()
        assert result.end is End.STOPPED
        assert result.data == stretch(at, result.total)
        at += result.total
        stop.clear()
    assert at > 0
    assert drain(out, limit=1000).data == stretch(at, 1000)


def test_ends_a_linger(pipe: Pipe, start: Callable[..., tuple[object, int]]) -> None:
    process, out = start("exit 0")
    drain(out)
    stop = Stop()
    with lasts(0.19, 0.3):
        setter = Task(stop.set, delay=0.2)
        assert drain(pipe[0], process=process, linger=30, stop=stop).end is End.STOPPED
    setter.result()


def test_set_beforehand(pipe: Pipe) -> None:
    stop = Stop()
    stop.set()
    with lasts(0, 0.1):
        assert drain(pipe[0], stop=stop).end is End.STOPPED
    os.write(pipe[1], b"kept")
    first = drain(pipe[0], stop=stop)
    assert first.end is End.STOPPED
    stop.clear()
    second = drain(pipe[0], stop=stop, timeout=0)
    assert first.data + second.data == b"kept"
    assert second.end is End.TIMEOUT


def test_an_end_that_has_come_is_not_a_stop(pipe: Pipe, own: Owner) -> None:
    """A set Stop may come first, but it must not hide bytes: the next call has them."""
    r, w = pipe
    os.write(w, b"all")
    own.close(w)
    stop = Stop()
    stop.set()
    first = drain(r, stop=stop)
    second = drain(r)
    assert first.data + second.data == b"all"
    assert second.end is End.EOF


def test_one_stop_ends_many_drains(own: Owner) -> None:
    stop = Stop()
    tasks = [Task(drain, own.pipe()[0], stop=stop) for _ in range(8)]
    let_it_sleep()
    with lasts(0, 0.3):
        stop.set()
        assert [task.result().end for task in tasks] == [End.STOPPED] * 8


def test_from_a_signal_handler_or_a_finaliser(pipe: Pipe) -> None:
    """set() is called in the thread that drains, as a handler would."""
    import signal

    stop = Stop()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    try:
        with lasts(0.09, 0.4):
            sender = Task(os.kill, os.getpid(), signal.SIGUSR1, delay=0.1)
            assert drain(pipe[0], stop=stop).end is End.STOPPED
        sender.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_waiting_for_a_stop_costs_nothing(pipe: Pipe) -> None:
    stop = Stop()
    with cpu_below(0.05), lasts(1, 0.2):
        assert drain(pipe[0], stop=stop, timeout=1).end is End.TIMEOUT


def test_a_stop_that_is_dropped_during_the_drain(pipe: Pipe) -> None:
    r, w = pipe
    draining = Task(drain, r, stop=Stop(), timeout=10, limit=1)
    let_it_sleep()
    gc.collect()
    os.write(w, b"x")
    assert draining.result().data == b"x"


def test_stops_cost_no_descriptor_each(pipe: Pipe) -> None:
    before = descriptors()
    stops = [Stop() for _ in range(50)]
    for stop in stops:
        stop.set()
        drain(pipe[0], stop=stop, keep=Window(1, 1))
    assert descriptors() == before


@pytest.mark.parametrize("bad", [True, object(), "stop"])
def test_something_else(bad: object, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        drain(pipe[0], stop=bad, timeout=0)  # type: ignore[arg-type]


def test_set_and_drain_in_a_race(pipe: Pipe, rounds: Callable[[int, int], int]) -> None:
    """set() at any moment of the drain's life ends it, and never leaves it asleep."""
    r, _ = pipe
    for i in range(rounds(40, 2000)):
        stop = Stop()
        setter = Task(stop.set, delay=(i % 10) * 0.0001)
        start = time.monotonic()
        assert drain(r, stop=stop, timeout=10).end is End.STOPPED
        assert time.monotonic() - start < 1
        setter.result()
