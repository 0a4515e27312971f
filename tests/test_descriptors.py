"""Descriptors: none leaked, none needed at the limit, each closed once; FDLEAK and FDREUSE."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from entry import ENTRIES, SELECTS
from support import (
    BACKEND,
    LINUX,
    Owner,
    Task,
    cpu_below,
    descriptors,
    fill,
    lasts,
    let_it_sleep,
    no_free_descriptor,
    prints_pattern,
    run_program,
    stretch,
)

import fdwait
from fdwait import READ, WRITE, End, FdWaiter, Stop, drain

Pipe = tuple[int, int]
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]
Rounds = Callable[[int, int], int]

each_entry = pytest.mark.parametrize("wait", ENTRIES.values(), ids=ENTRIES)


# ---- leaks ----


def test_b036_many_calls_leave_nothing(own: Owner, rounds: Rounds) -> None:
    data = own(os.open(__file__, os.O_RDONLY))
    before = descriptors()
    gc.disable()
    try:
        for _ in range(rounds(300, 3000)):
            r, w = own.pipe()
            with FdWaiter(r) as waiter:
                waiter.wait(0)
            FdWaiter(w, WRITE).wait(0)
            FdWaiter(data).wait(0)
            fdwait.wait_readable(r, 0)
            fdwait.select([r], [w], [r], 0)
            os.write(w, b"x")
            own.close(w)
            assert drain(r, stop=Stop()).data == b"x"
            own.close(r)
        if sys.implementation.name != "pypy":  # without reference counts, dropped waiters remain
            assert descriptors() == before
    finally:
        gc.enable()
    gc.collect()
    assert descriptors() == before


def test_b036_threads_that_end_leave_nothing(own: Owner, rounds: Rounds) -> None:
    before = descriptors()

    def use() -> None:
        with Owner() as mine:
            r, w = mine.pipe()
            with FdWaiter(r) as waiter:
                waiter.wait(0)
            os.write(w, b"x")
            assert drain(r, timeout=0, stop=Stop()).data == b"x"

    for _ in range(rounds(50, 500)):
        Task(use).result()
    assert descriptors() == before


def test_errors_leave_nothing(own: Owner) -> None:
    r, w = own.pipe()
    directory = own(os.open(os.curdir, os.O_RDONLY))
    closed = os.dup(r)
    os.close(closed)
    before = descriptors()
    for _ in range(20):
        for call, arguments in [
            (FdWaiter, (closed,)),
            (FdWaiter, (-1,)),
            (FdWaiter, (r, 0)),
            (fdwait.wait_readable, (closed,)),
            (fdwait.select, ([r, closed], [w], [])),
            (fdwait.select, ([r], [], [], "x")),
            (drain, (closed,)),
            (drain, (directory,)),
            (drain, (w,)),
        ]:
            with pytest.raises((OSError, ValueError, TypeError)):
                call(*arguments)
    assert descriptors() == before


def test_b040_children_get_nothing_of_ours(own: Owner, start: Start) -> None:
    """While a wait and two drains are under way, children are started that inherit what they can."""
    inheritable = {fd for fd in descriptors() if os.get_inheritable(fd)}
    process, out = start("sleep 20")
    stop = Stop()
    (r1, w1), (r2, _w2) = own.pipe(), own.pipe()
    waiter = FdWaiter(r1)
    tasks = [
        Task(waiter.wait, 20),
        Task(drain, out, process=process, stop=stop),
        Task(drain, r2, stop=stop),
    ]
    let_it_sleep()
    ours = [fd for fd in descriptors() if os.get_inheritable(fd)]
    assert set(ours) == inheritable

    lists = [sys.executable, "-S", "-E", "-c", "import os; print(os.listdir('/dev/fd'))"]
    if LINUX:
        lists = ["ls", "-l", "/proc/self/fd"]
        for run in (run_popen, run_posix_spawn):
            listing = run(lists)
            assert "pipe" in listing
            assert not any(name in listing for name in ("eventpoll", "eventfd", "pidfd"))
    stop.set()
    os.write(w1, b"x")
    for task in tasks:
        task.result()
    waiter.close()


def run_popen(args: list[str]) -> str:
    return subprocess.run(args, check=False, close_fds=False, capture_output=True, text=True).stdout


def run_posix_spawn(args: list[str]) -> str:
    with Owner() as own:
        r, w = own.pipe()
        file_actions = [(os.POSIX_SPAWN_DUP2, w, 1)]
        pid = os.posix_spawnp(args[0], args, os.environ, file_actions=file_actions)
        own.close(w)
        assert os.waitpid(pid, 0)[1] == 0
        return os.read(r, 100_000).decode()


@pytest.mark.skipif(not LINUX, reason="looks at the descriptors themselves in /proc")
def test_b040_after_fork_and_exec_nothing_of_ours_is_left() -> None:
    output = run_program(
        """
        import os, fdwait
        from support import Task, let_it_sleep
        r, w = os.pipe()
        waiter = fdwait.FdWaiter(r)
        task = Task(waiter.wait, 20)
        stop = fdwait.Stop()
        other = Task(fdwait.drain, os.pipe()[0], stop=stop)
        let_it_sleep()
        pid = os.fork()
        if pid == 0:
            os.execvp("ls", ["ls", "-l", "/proc/self/fd"])
        assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        os.write(w, b"x")
        task.result(); other.result()
        """
    )
    assert "pipe" in output or "dev" in output
    assert not any(name in output for name in ("eventpoll", "eventfd", "pidfd"))


def test_numbers_0_to_2_are_never_taken() -> None:
    """With the standard descriptors closed, nothing of ours takes their place, ever."""
    run_program(
        """
        import os, sys, fdwait
        from support import Task, let_it_sleep
        r, w = os.pipe()
        error = os.dup(2)
        # Python opens what it needs before the lowest numbers are free.
        waiter = fdwait.FdWaiter(r); waiter.close()
        sys.stderr = os.fdopen(error, "w")
        os.close(0); os.close(1); os.close(2)
        waiter = fdwait.FdWaiter(r)
        stop = fdwait.Stop()
        task = Task(fdwait.drain, r, stop=stop)
        let_it_sleep()
        for fd in 0, 1, 2:
            try:
                os.fstat(fd)
            except OSError:
                continue
            os._exit(3)
        assert waiter.wait(0) is False
        stop.set()
        assert task.result().end is fdwait.End.STOPPED
        waiter.close()
        """
    )


# ---- no descriptor left: EMFILE ----


def test_b038_wait_and_drain_of_a_running_command(start: Start, place: Callable[..., int]) -> None:
    process, out = start("read line; echo first; read line; echo second", place, stdin=-1)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    with no_free_descriptor(), cpu_below(0.1):
        with FdWaiter(out) as waiter:
            assert waiter.backend in ("poll", "select")
            assert waiter.wait(10) is True
            assert drain(out, limit=6).data == b"first\n"
            assert waiter.wait(0) is False
            with lasts(0.2, 0.15):
                assert waiter.wait(0.2) is False
        assert fdwait.select([out], [], [], 0) == ([], [], [])
        process.stdin.write(b"\n")
        process.stdin.flush()
        result = drain(out, process=process)
        assert (result.data, result.end) == (b"second\n", End.EOF)
    assert process.wait(10) == 0
    with FdWaiter(out) as waiter:  # no permanent downgrade
        assert waiter.backend == (BACKEND or waiter.backend)
        assert BACKEND or waiter.backend in ("epoll", "kqueue")


def test_b038_a_waiter_made_at_the_limit_serves_on_above_it(pipe: Pipe) -> None:
    r, w = pipe
    with no_free_descriptor():
        waiter = FdWaiter(r)
        assert waiter.wait(0) is False
    with waiter:
        assert waiter.wait(0) is False
        os.write(w, b"x")
        assert waiter.wait(10) is True


def test_b038_the_exit_is_noticed_at_the_limit(start: Start, high_pipe: Pipe) -> None:
    r, _ = high_pipe  # held open by us: only the exit can end it
    process, _ = start("sleep 0.3")
    with no_free_descriptor(), lasts(0.4, 0.5), cpu_below(0.1):
        assert drain(r, process=process, linger=0.2).end is End.EXITED


def test_b038_a_large_output_at_the_limit(start: Start, place: Callable[[int], int]) -> None:
    process, out = start(prints_pattern(10_000_019), place)
    with no_free_descriptor():
        result = drain(out, process=process)
    assert result.data == stretch(0, 10_000_019)
    assert result.end is End.EOF


def test_many_waiters_pass_the_limit_unharmed(pipe: Pipe) -> None:
    """Waiters are made until descriptors run out, and go on being made."""
    import resource

    r, w = pipe
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = min(set(range(10_000)) - set(descriptors()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 20, hard))
    try:
        waiters = [FdWaiter(r) for _ in range(50)]
        assert [x.wait(0) for x in waiters] == [False] * 50
        os.write(w, b"x")
        assert [x.wait(0) for x in waiters] == [True] * 50
        kinds = {x.backend for x in waiters}
        for x in waiters:
            x.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "poll" in kinds or "select" in kinds


def test_a_whole_process_at_its_limit() -> None:
    """From the first import on, not one descriptor can be opened beyond the standard ones."""
    run_program(
        """
        import os, resource
        r, w = os.pipe()
        import fdwait
        from support import *
        with no_free_descriptor():
            waiter = fdwait.FdWaiter(r)
            assert waiter.wait(0.01) is False
            stop = fdwait.Stop()
            task = Task(fdwait.drain, r, stop=stop)
            let_it_sleep()
            stop.set()
            assert task.result(5).end is fdwait.End.STOPPED
            os.write(w, b"x")
            assert waiter.wait(5) is True
            other = Task(waiter.wait, 20)
            os.read(r, 1)
            os.write(w, b"data")
            os.close(w)
            assert fdwait.drain(r).data.endswith(b"data")
            waiter.close()
        """
    )


# ---- closed once ----


def test_b046_a_second_close_closes_nothing(pipe: Pipe, own: Owner) -> None:
    before = set(descriptors())
    waiter = FdWaiter(pipe[0])
    numbers = set(descriptors()) - before
    waiter.close()
    files = [own(os.open(__file__, os.O_RDONLY)) for _ in range(len(numbers) + 2)]
    assert numbers <= set(files)  # they have the waiter's number now
    waiter.close()
    del waiter
    gc.collect()
    for fd in files:
        assert stat.S_ISREG(os.fstat(fd).st_mode)


def test_b046_dropped_after_close(pipe: Pipe, own: Owner) -> None:
    with FdWaiter(pipe[0]) as waiter:
        waiter.wait(0)
    files = [own(os.open(__file__, os.O_RDONLY)) for _ in range(3)]
    del waiter
    gc.collect()
    for fd in files:
        os.fstat(fd)


# ---- closed and reused under a waiter ----


@pytest.mark.parametrize("high", [False, True])
def test_b042_a_registration_does_not_outlive_its_descriptor(high: bool, own: Owner) -> None:
    r, w = own.pipe()
    if high:
        r = own.up(r)
    with cpu_below(0.03):
        first = FdWaiter(r)
        assert first.wait(0.01) is False
        assert fdwait.wait_readable(r, 0.01) is False
        own.dup(r)
        own.close(r)
        os.write(w, b"x")
        idle, _ = own.pipe()
        if idle == r:  # it is to be another number
            idle = own.dup(idle)
        for wait in ENTRIES.values():
            with lasts(0.1, 0.1):
                assert wait(idle, 0.1) is False
        new, new_w = own.pipe()
        if new != r:
            os.dup2(new, r, inheritable=False)
            own(r)
        for wait in ENTRIES.values():
            assert wait(r, 0) is False
        os.write(new_w, b"yy")
        for wait in ENTRIES.values():
            assert wait(r, 5) is True
            os.write(new_w, b"y")
        first.close()


def test_closed_by_another_thread_is_noticed_within_five_seconds(own: Owner) -> None:
    """Nothing wakes a wait whose descriptor was closed: it asks, every five seconds."""

    def error_of(call: Callable[..., object], *args: object) -> int | None:
        with pytest.raises(OSError) as caught:
            call(*args)
        return caught.value.errno

    tasks = []
    closed = []
    for reuse in False, True:
        for name in ENTRIES:
            if name == "FdWaiter on poll":
                continue  # lowers the limit, which the other threads would feel
            if name in SELECTS and reuse:
                continue  # select() knows a number, not a file
            r, _ = own.pipe()
            closed.append((r, reuse))
            tasks.append(Task(error_of, ENTRIES[name], r, None))
    other, _ = own.pipe()  # made before any number is free
    let_it_sleep()
    with lasts(0, 5.5):
        for fd, reuse in closed:
            if reuse:
                os.dup2(other, fd)
            else:
                own.close(fd)
        for task in tasks:
            assert task.result() == errno.EBADF


def test_b044_close_ends_the_waits_of_other_threads(pipe: Pipe) -> None:
    waiter = FdWaiter(pipe[0])

    def wait() -> str:
        with pytest.raises(ValueError, match="closed"):
            waiter.wait()
        return "ended"

    tasks = [Task(wait) for _ in range(3)]
    let_it_sleep()
    with lasts(0, 0.5):
        waiter.close()
        assert [task.result() for task in tasks] == ["ended"] * 3
    assert waiter.closed


def test_b044_at_the_limit_too(pipe: Pipe) -> None:
    with no_free_descriptor():
        waiter = FdWaiter(pipe[0])

        def wait() -> str:
            with pytest.raises(ValueError, match="closed"):
                waiter.wait()
            return "ended"

        task = Task(wait)
        let_it_sleep()
        with lasts(0, 0.5):
            waiter.close()
            assert task.result() == "ended"


def test_close_races_with_wait(pipe: Pipe, rounds: Rounds) -> None:
    before = descriptors()
    for _ in range(rounds(25, 2000)):
        waiter = FdWaiter(pipe[0])
        gate = threading.Barrier(3)

        def wait(waiter: FdWaiter = waiter, gate: threading.Barrier = gate) -> None:
            gate.wait()
            with pytest.raises(ValueError, match="closed"):
                waiter.wait(20)

        tasks = [Task(wait), Task(wait)]
        gate.wait()
        waiter.close()
        for task in tasks:
            task.result(5)
    assert descriptors() == before


# ---- what is handed in stays as it was ----


def test_flags_and_pipe_size_of_others_stay(own: Owner) -> None:
    """A drain may enlarge a busy pipe, but changes no flag."""
    r, w = own.pipe()
    flags = [(fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)) for fd in (r, w)]
    size = fill(w)
    drain(r, timeout=0)
    with FdWaiter(r, READ | WRITE) as waiter:
        waiter.wait(0)
    assert size > 0
    assert flags == [(fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)) for fd in (r, w)]
