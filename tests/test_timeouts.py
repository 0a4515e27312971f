"""Time-outs, the same at every entry point; field cases of class TIMEOUT, and B013."""

from __future__ import annotations

import os
import time

import pytest
from entry import ENTRIES, WAITS, Entry
from support import SLACK, Owner, Task, cpu_below, fill, lasts

import fdwait

Pipe = tuple[int, int]

each_wait = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
each_entry = pytest.mark.parametrize("wait", ENTRIES.values(), ids=ENTRIES)


@pytest.fixture
def pipe(high_pipe: Pipe) -> Pipe:
    return high_pipe


@pytest.mark.parametrize("seconds", [0.2, 2.5])
def test_b013_a_timeout_is_in_seconds(seconds: float, own: Owner) -> None:
    # All at once, each on its own idle pipe in its own thread.
    def timed(wait: Entry, fd: int) -> float:
        start = time.monotonic()
        assert wait(fd, seconds) is False
        return time.monotonic() - start

    tasks = {}
    for name, wait in ENTRIES.items():
        # The fallback is made in an environment that other threads would feel: see below.
        if name != "FdWaiter on poll":
            tasks[name] = Task(timed, wait, own.up(own.pipe()[0]))
    full = own.pipe()[1]
    fill(full)
    tasks["wait_writable"] = Task(timed, fdwait.wait_writable, full)
    for name, task in tasks.items():
        took = task.result()
        assert seconds <= took <= seconds + 0.2 * SLACK, f"{name}: {took} s"


def test_b013_also_when_the_wait_falls_back_to_poll(pipe: Pipe) -> None:
    with lasts(0.2, 0.15):
        assert ENTRIES["FdWaiter on poll"](pipe[0], 0.2) is False


@each_entry
@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, False])
def test_zero_looks_once(wait: Entry, timeout: float, pipe: Pipe) -> None:
    r, w = pipe
    with lasts(0, 0.1):
        assert wait(r, timeout) is False
        os.write(w, b"x")
        assert wait(r, timeout) is True


@each_wait
@pytest.mark.parametrize("timeout", [-1, -0.5, -1000, -1e300, float("-inf")])
def test_b061_less_than_zero_looks_once(wait: Entry, timeout: float, pipe: Pipe) -> None:
    r, w = pipe
    with lasts(0, 0.1):
        assert wait(r, timeout) is False
        os.write(w, b"x")
        assert wait(r, timeout) is True


@each_wait
@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 1e18, 2**62, 1e9, 10.0])
def test_b059_for_ever_and_nearly(wait: Entry, timeout: float | None, pipe: Pipe) -> None:
    r, w = pipe
    with lasts(0.09, 0.3):
        writer = Task(os.write, w, b"x", delay=0.1)
        assert wait(r, timeout) is True
    writer.result()


@each_entry
def test_b059_nan(wait: Entry, pipe: Pipe) -> None:
    with pytest.raises(ValueError):
        wait(pipe[0], float("nan"))


@each_entry
@pytest.mark.parametrize("timeout", ["1", b"1", [1], object(), 1j])
def test_a_timeout_of_another_type(wait: Entry, timeout: float, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        wait(pipe[0], timeout)


@each_entry
def test_a_number_that_no_float_can_hold(wait: Entry, pipe: Pipe) -> None:
    with pytest.raises(OverflowError):
        wait(pipe[0], 10**400)


@pytest.mark.parametrize("seconds", [0.0004, 0.0015])
@pytest.mark.parametrize("wait", ["FdWaiter", "wait_readable", "select"])
def test_b057_fractions_of_a_millisecond(wait: str, seconds: float, pipe: Pipe) -> None:
    times = []
    with cpu_below(0.03), fdwait.FdWaiter(pipe[0]) as waiter:
        call = waiter.wait if wait == "FdWaiter" else lambda t: ENTRIES[wait](pipe[0], t)
        for _ in range(100):
            start = time.monotonic_ns()
            assert call(seconds) is False
            times.append(time.monotonic_ns() - start)
    assert min(times) >= seconds * 1e9  # never early
    assert sorted(times)[50] < 4e6  # the median: a busy machine may hold up single ones


@each_entry
def test_never_early(wait: Entry, pipe: Pipe) -> None:
    for i in range(1, 60):
        seconds = i * i * 0.9e-6  # odd lengths up to 3 ms
        start = time.monotonic_ns()
        wait(pipe[0], seconds)
        assert time.monotonic_ns() - start >= seconds * 1e9


def test_b063_a_trickle_does_not_stretch_the_time(pipe: Pipe) -> None:
    r, w = pipe
    done: list[bool] = []

    def trickle() -> None:
        while not done:
            Task(os.write, w, b"x", delay=0.2).result()

    writer = Task(trickle)
    with lasts(1, 0.3):
        result = fdwait.drain(r, timeout=1)
    done.append(True)
    writer.result()
    assert result.end is fdwait.End.TIMEOUT
    assert 1 <= result.total <= 5
    assert result.data == b"x" * result.total


def test_an_idle_wait_costs_no_processor_time(own: Owner) -> None:
    """In the main thread too, which looks up now and then."""
    waits = [wait for name, wait in ENTRIES.items() if name != "FdWaiter on poll"]
    with cpu_below(0.1), lasts(1, 0.2):
        tasks = [Task(wait, own.pipe()[0], 1) for wait in waits[1:]]
        assert waits[0](own.pipe()[0], 1) is False
        assert [task.result() for task in tasks] == [False] * len(tasks)
