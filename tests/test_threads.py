"""Threads: the GIL is free while a call waits or moves bytes, and objects may be shared."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from entry import ENTRIES
from support import (
    SLACK,
    Owner,
    Task,
    descriptors,
    lasts,
    let_it_sleep,
    prints_pattern,
    stretch,
)

import fdwait
from fdwait import End, FdWaiter, Stop, Window, drain

Pipe = tuple[int, int]
Rounds = Callable[[int, int], int]
Start = Callable[..., tuple[object, int]]


def latest_tick(busy: Task, interval: float = 0.005) -> float:
    """How late, at most but for one tick in a hundred, this thread got to run beside another one."""
    late = []
    while busy.is_alive():
        start = time.perf_counter()
        time.sleep(interval)
        late.append(time.perf_counter() - start - interval)
    assert len(late) > 20
    return sorted(late)[len(late) * 99 // 100]


def test_a_wait_leaves_the_interpreter_to_others(high_pipe: Pipe) -> None:
    for name in "FdWaiter", "wait_readable", "select", "drain":
        assert latest_tick(Task(ENTRIES[name], high_pipe[0], 0.3)) < 0.05 * SLACK


def test_b172_so_does_a_flood(start: Start, rounds: Rounds) -> None:
    _, out = start(prints_pattern())
    for keep in Window(1000, 1000), None:
        seconds = rounds(1, 3) if keep else 0.2
        flood = Task(drain, out, timeout=seconds, keep=keep)
        assert latest_tick(flood) < 0.05 * SLACK
        assert flood.result().total > 1_000_000


def test_so_does_the_copy_of_a_large_result(start: Start) -> None:
    size = 300_000_000
    _, out = start(["head", "-c", str(size), "/dev/zero"])
    draining = Task(drain, out)
    assert latest_tick(draining) < 0.05 * SLACK
    assert draining.result().total == size


def test_all_threads_on_one_waiter_wake_up(high_pipe: Pipe) -> None:
    r, w = high_pipe
    with FdWaiter(r) as waiter:
        for _ in range(5):
            tasks = [Task(waiter.wait, 20) for _ in range(8)]
            let_it_sleep()
            with lasts(0, 0.5):
                os.write(w, b"x")
                assert [task.result() for task in tasks] == [True] * 8
            os.read(r, 1)


def test_one_waiter_with_many_time_outs(pipe: Pipe) -> None:
    with FdWaiter(pipe[0]) as waiter:

        def timed(seconds: float) -> None:
            with lasts(seconds, 0.2):
                assert waiter.wait(seconds) is False

        for task in [Task(timed, 0.02 * i) for i in range(10)]:
            task.result()


def test_a_thread_each(own: Owner, place: Callable[[int], int], rounds: Rounds) -> None:
    """Ping-pong over pipes in eight threads, through every entry point."""
    count = rounds(50, 2000)

    def player(wait: Callable[[int, float], bool], r: int, w: int, serves: bool) -> None:
        for i in range(count):
            if serves:
                os.write(w, b"%d" % (i % 10))
            assert wait(r, 20) is True
            assert os.read(r, 1) == b"%d" % (i % 10)
            if not serves:
                os.write(w, b"%d" % (i % 10))

    tasks = []
    for name in "FdWaiter", "wait_readable", "select", "select, 2 lists":
        (r1, w1), (r2, w2) = own.pipe(), own.pipe()
        r1, r2 = place(r1), place(r2)
        tasks.append(Task(player, ENTRIES[name], r1, w2, True))
        tasks.append(Task(player, ENTRIES[name], r2, w1, False))
    for task in tasks:
        task.result()


def test_many_drains_at_once(start: Start) -> None:
    size = 3_000_017
    outs = [start(prints_pattern(size))[1] for _ in range(8)]
    results = [task.result() for task in [Task(drain, out) for out in outs]]
    expected = stretch(0, size)
    assert all(result.data == expected and result.end is End.EOF for result in results)


def test_two_drains_share_one_source(start: Start) -> None:
    """Between them they get everything, and both see the end."""
    size = 20_000_003
    _, out = start(prints_pattern(size))
    first, second = (task.result() for task in [Task(drain, out), Task(drain, out)])
    assert first.total + second.total == size
    assert first.end is second.end is End.EOF


def test_b168_shared_objects_under_concurrent_use(own: Owner, rounds: Rounds) -> None:
    """Waits, drains, selects, stops and closes of shared objects in many threads: right or refused."""
    seconds = rounds(1, 10)
    until = time.monotonic() + seconds
    pipes = [own.pipe() for _ in range(4)]
    for _, w in pipes[:2]:
        os.write(w, b"x")
    ready = [True, True, False, False]
    waiters = [FdWaiter(r) for r, _ in pipes]
    stop = Stop()
    counts = [0] * 8

    def use(me: int) -> None:
        while time.monotonic() < until:
            i = counts[me] % 4
            r = pipes[i][0]
            assert waiters[i].wait(0) is ready[i]
            assert fdwait.wait_readable(r, 0) is ready[i]
            readers = [r for r, _ in pipes]
            assert fdwait.select(readers, [], [], 0)[0] == readers[:2]
            assert drain(pipes[2][0], timeout=0.0001, stop=stop).total == 0
            with FdWaiter(r) as own_waiter:
                assert own_waiter.wait(0) is ready[i]
            stop.set() if counts[me] % 2 else stop.clear()
            counts[me] += 1

    before = descriptors()
    for task in [Task(use, me) for me in range(8)]:
        task.result()
    assert min(counts) > 0
    assert descriptors() == before
    for waiter in waiters:
        waiter.close()


def test_b170_close_and_attributes_in_a_race(own: Owner, rounds: Rounds) -> None:
    r, _ = own.pipe()
    for _ in range(rounds(100, 3000)):
        waiter = FdWaiter(r)
        gate = threading.Barrier(4)

        def look(waiter: FdWaiter = waiter, gate: threading.Barrier = gate) -> None:
            gate.wait()
            for _ in range(20):
                assert waiter.closed in (True, False)
                assert waiter.fd == r
                assert isinstance(waiter.backend, str)
                assert repr(waiter)

        def close(waiter: FdWaiter = waiter, gate: threading.Barrier = gate) -> None:
            gate.wait()
            waiter.close()
            assert waiter.closed is True

        for task in [Task(look), Task(look), Task(close), Task(close)]:
            task.result()
