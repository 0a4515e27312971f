"""FdWaiter and the wait functions: arguments, life, and what a waiter costs."""

from __future__ import annotations

import errno
import gc
import os
import selectors
import weakref
from collections.abc import Callable

import pytest
from support import BACKEND, HasFileno, Owner, Task, descriptors, fill, lasts, let_it_sleep

import fdwait
from fdwait import READ, WRITE, FdWaiter, wait_readable, wait_writable

Pipe = tuple[int, int]


def test_directions_are_those_of_selectors() -> None:
    assert (READ, WRITE) == (selectors.EVENT_READ, selectors.EVENT_WRITE)


def test_attributes(pipe: Pipe) -> None:
    r, w = pipe
    with FdWaiter(r) as waiter:
        assert (waiter.fd, waiter.events, waiter.closed) == (r, READ, False)
        assert waiter.backend in ("epoll", "kqueue", "poll", "select")
        assert waiter.backend == (BACKEND or waiter.backend)
    assert waiter.closed
    with FdWaiter(w, events=READ | WRITE) as waiter:
        assert (waiter.fd, waiter.events) == (w, READ | WRITE)


def test_data_wakes_a_wait(pipe: Pipe) -> None:
    r, w = pipe
    with FdWaiter(r) as waiter:
        with lasts(0.09, 0.4):
            writer = Task(os.write, w, b"x", delay=0.1)
            assert waiter.wait(10) is True
        writer.result()


def test_room_wakes_a_wait(pipe: Pipe) -> None:
    r, w = pipe
    size = fill(w)
    with FdWaiter(w, WRITE) as waiter:
        with lasts(0.09, 0.4):
            reader = Task(os.read, r, size, delay=0.1)
            assert waiter.wait(10) is True
        reader.result()


@pytest.mark.parametrize("function", [wait_readable, wait_writable])
def test_wait_functions_are_woken(function: Callable[..., bool], pipe: Pipe) -> None:
    r, w = pipe
    size = fill(w) if function is wait_writable else 0
    fd = r if function is wait_readable else w
    with lasts(0.09, 0.4):
        other = Task(os.read, r, size, delay=0.1) if size else Task(os.write, w, b"x", delay=0.1)
        assert function(fd, 10) is True
    other.result()


def test_ready_until_it_is_read(pipe: Pipe) -> None:
    r, w = pipe
    with FdWaiter(r) as waiter:
        os.write(w, b"x")
        assert [waiter.wait(0) for _ in range(3)] == [True] * 3
        os.read(r, 1)
        assert waiter.wait(0) is False


def test_hang_up_wakes_a_wait(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    with FdWaiter(r) as waiter:
        with lasts(0.09, 0.4):
            closer = Task(own.close, w, delay=0.1)
            assert waiter.wait() is True
        closer.result()


def test_several_waiters_on_one_descriptor(pipe: Pipe) -> None:
    r, w = pipe
    with FdWaiter(r) as a, FdWaiter(r) as b, FdWaiter(r, READ | WRITE) as c:
        assert [x.wait(0) for x in (a, b, c)] == [False] * 3
        os.write(w, b"x")
        a.close()
        assert [x.wait(0) for x in (b, c)] == [True] * 2


# ---- what is handed in ----


def test_an_object_with_fileno(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"x")
    source = HasFileno(r)
    with FdWaiter(source) as waiter:
        assert waiter.fd == r
        assert waiter.wait(0) is True
    assert wait_readable(source, 0) is True
    assert wait_writable(HasFileno(w), 0) is True


def test_an_object_lives_as_long_as_its_waiter(pipe: Pipe) -> None:
    source = HasFileno(pipe[0])
    alive = weakref.ref(source)
    waiter = FdWaiter(source)
    del source
    gc.collect()
    assert waiter.wait(0) is False
    assert alive() is not None
    waiter.close()
    del waiter
    gc.collect()
    assert alive() is None


def test_what_is_handed_in_is_never_closed(pipe: Pipe) -> None:
    r, _ = pipe
    FdWaiter(r).close()
    waiter = FdWaiter(r)
    del waiter
    gc.collect()
    os.fstat(r)


@pytest.mark.parametrize("use", [FdWaiter, wait_readable, wait_writable])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (-1, ValueError),
        (-(2**40), ValueError),
        (HasFileno(-1), ValueError),
        (None, TypeError),
        ("0", TypeError),
        (b"0", TypeError),
        (0.0, TypeError),
        (object(), TypeError),
        (HasFileno("0"), TypeError),
        (HasFileno(None), TypeError),
        ([0], TypeError),
    ],
    ids=repr,
)
def test_bad_descriptor_arguments(use: Callable[..., object], bad: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        use(bad)


@pytest.mark.parametrize("use", [FdWaiter, wait_readable, wait_writable, fdwait.drain])
def test_a_number_that_was_never_open(use: Callable[..., object]) -> None:
    for number in (99_999, 2**31 - 1):
        with pytest.raises(OSError) as caught:
            use(number)
        assert caught.value.errno == errno.EBADF
        assert str(number) in str(caught.value)  # the text says which descriptor


def test_the_error_of_fileno_comes_through() -> None:
    class Broken:
        def fileno(self) -> int:
            raise ZeroDivisionError

    for use in (FdWaiter, wait_readable, wait_writable):
        with pytest.raises(ZeroDivisionError):
            use(Broken())


def test_a_closed_file_object() -> None:
    with open(os.devnull) as f:
        pass
    for use in (FdWaiter, wait_readable, wait_writable):
        with pytest.raises(ValueError, match="closed file"):
            use(f)


@pytest.mark.parametrize("events", [0, 4, READ | WRITE | 4, -1, 2**40])
def test_bad_events(events: int, pipe: Pipe) -> None:
    with pytest.raises(ValueError, match="events"):
        FdWaiter(pipe[0], events)


@pytest.mark.parametrize("events", ["r", None, 1.0])
def test_events_of_another_type(events: object, pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        FdWaiter(pipe[0], events)


# ---- life ----


def test_a_closed_waiter_says_so(pipe: Pipe) -> None:
    waiter = FdWaiter(pipe[0])
    waiter.close()
    with pytest.raises(ValueError, match="closed"):
        waiter.wait(0)
    assert waiter.fd == pipe[0]


def test_close_is_idempotent_and_so_is_the_with_block(pipe: Pipe) -> None:
    with FdWaiter(pipe[0]) as waiter:
        waiter.close()
        waiter.close()
    waiter.close()
    assert waiter.closed


def test_a_waiter_costs_at_most_one_descriptor(pipe: Pipe) -> None:
    before = descriptors()
    waiter = FdWaiter(pipe[0])
    cost = len(descriptors()) - len(before)
    assert cost == (1 if waiter.backend in ("epoll", "kqueue") else 0)
    for _ in range(3):
        waiter.wait(0)
    assert len(descriptors()) - len(before) == cost
    waiter.close()
    assert descriptors() == before


def test_a_dropped_waiter_gives_its_descriptor_back(pipe: Pipe) -> None:
    before = descriptors()
    waiter = FdWaiter(pipe[0])
    del waiter
    gc.collect()
    assert descriptors() == before


def test_wait_functions_use_no_descriptor(pipe: Pipe) -> None:
    before = descriptors()
    waiting = Task(wait_readable, pipe[0], 10)
    let_it_sleep()
    assert descriptors() == before
    os.write(pipe[1], b"x")
    assert waiting.result() is True


@pytest.mark.parametrize("path", [os.devnull, os.curdir, __file__])
def test_always_ready(path: str, own: Owner) -> None:
    fd = own(os.open(path, os.O_RDONLY))
    before = descriptors()
    with FdWaiter(fd, READ | WRITE) as waiter:
        assert waiter.wait(0) is True
        if BACKEND is None:
            assert waiter.backend == "always"
            assert descriptors() == before
