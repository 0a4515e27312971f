"""select() against select.select(): arguments, results, and the field cases of class DROPIN."""

from __future__ import annotations

import decimal
import errno
import fractions
import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import HasFileno, Owner, Task, descriptors, lasts, raise_limit

import fdwait

Pipe = tuple[int, int]


class Raises:
    def fileno(self) -> int:
        raise ZeroDivisionError("from fileno")


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call returned, or the class (and errno) of what it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), getattr(error, "errno", None)


ARGUMENTS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    # time-outs
    "timeout -1": lambda fd: ([fd], [], [], -1),
    "timeout -1e-12": lambda fd: ([fd], [], [], -1e-12),
    "timeout -1e-300": lambda fd: ([fd], [], [], -1e-300),
    "timeout NaN": lambda fd: ([fd], [], [], float("nan")),
    "timeout inf": lambda fd: ([fd], [], [], float("inf")),
    "timeout -inf": lambda fd: ([fd], [], [], float("-inf")),
    "timeout 1e300": lambda fd: ([fd], [], [], 1e300),
    "timeout 10**400": lambda fd: ([fd], [], [], 10**400),
    "timeout str": lambda fd: ([fd], [], [], "1"),
    "timeout list": lambda fd: ([fd], [], [], [1]),
    "timeout complex": lambda fd: ([fd], [], [], 1j),
    "timeout Decimal": lambda fd: ([fd], [], [], decimal.Decimal(0)),
    "timeout Fraction": lambda fd: ([fd], [], [], fractions.Fraction(0)),
    "timeout -0.0": lambda fd: ([fd], [], [], -0.0),
    "timeout False": lambda fd: ([fd], [], [], False),
    "timeout 1e-12": lambda fd: ([fd], [], [], 1e-12),
    # lists
    "None for a list": lambda fd: (None, [], [], 0),
    "None for the second": lambda fd: ([fd], None, [], 0),
    "None for the third": lambda fd: ([fd], [], None, 0),
    "a number for a list": lambda fd: (fd, [], [], 0),
    "a string for a list": lambda fd: ("0", [], [], 0),
    "bytes for a list": lambda fd: (bytes([fd]), [], [], 0),
    "a mapping for a list": lambda fd: ({fd: 1}, [], [], 0),
    "missing lists": lambda fd: ([fd],),
    "too many arguments": lambda fd: ([fd], [], [], 0, 0),
    "no descriptors": lambda fd: ([], [], [], 0),
    # descriptors
    "a float": lambda fd: ([float(fd)], [], [], 0),
    "None": lambda fd: ([None], [], [], 0),
    "a string": lambda fd: (["0"], [], [], 0),
    "no fileno": lambda fd: ([object()], [], [], 0),
    "fileno is a string": lambda fd: ([HasFileno("0")], [], [], 0),
    "fileno is a float": lambda fd: ([HasFileno(0.0)], [], [], 0),
    "fileno is None": lambda fd: ([HasFileno(None)], [], [], 0),
    "fileno raises": lambda fd: ([Raises()], [], [], 0),
    "negative": lambda fd: ([-1], [], [], 0),
    "negative, written": lambda fd: ([], [-1], [], 0),
    "negative, exceptional": lambda fd: ([], [], [-1], 0),
    "fileno is negative": lambda fd: ([HasFileno(-1)], [], [], 0),
    "too large for C": lambda fd: ([2**40], [], [], 0),
    "far too large for C": lambda fd: ([2**80], [], [], 0),
    # which comes first
    "bad timeout and bad list": lambda fd: (None, [], [], "1"),
    "negative timeout and bad list": lambda fd: (None, [], [], -1),
    "negative timeout and bad descriptor": lambda fd: ([-1], [], [], -1),
    "bad first and bad second": lambda fd: ([object()], [-1], [], 0),
    # good ones
    "ready": lambda fd: ([fd], [fd], [fd], 0),
    "twice": lambda fd: ([fd, fd], [], [fd, fd], 0),
    "a generator": lambda fd: ((x for x in [fd]), [], [], 0),
    "a set": lambda fd: ({fd}, set(), frozenset(), 0),
    "a tuple": lambda fd: ((fd,), (), (), 0),
    "a range": lambda fd: (range(fd, fd + 1), (), (), 0),
}


@pytest.mark.parametrize("make", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_as_select_takes_them(make: Callable[[int], tuple[Any, ...]], own: Owner) -> None:
    r, w = own.pipe()
    os.write(w, b"x")
    theirs = outcome(select.select, make(r))
    with lasts(0, 0.2):
        assert outcome(fdwait.select, make(r)) == theirs


def test_a_negative_number_is_a_value_error_however_large() -> None:
    with pytest.raises(ValueError, match="negative"):
        fdwait.select([-(2**40)], [], [], 0)  # OverflowError in select.select()


@pytest.mark.parametrize("number", [1000, 5000, 99_999, 2**31 - 1])
def test_a_number_that_was_never_open(number: int, own: Owner) -> None:
    """EBADF. The kernel calls a number beyond its descriptor table ready, or leaves it out."""
    r, w = own.pipe()
    os.write(w, b"x")
    for timeout in 0, 5, None:
        for lists in (
            ([number], [], []),
            ([], [number], []),
            ([], [], [number]),
            ([r, number], [w], []),
        ):
            with lasts(0, 0.1), pytest.raises(OSError, match=str(number)) as caught:
                fdwait.select(*lists, timeout)
            assert caught.value.errno == errno.EBADF


def test_the_iterator_of_a_list_may_raise(own: Owner) -> None:
    def broken() -> Iterator[int]:
        yield own.pipe()[0]
        raise ZeroDivisionError

    for function in select.select, fdwait.select:
        with pytest.raises(ZeroDivisionError):
            function(broken(), [], [], 0)


def test_the_result_is_a_tuple_of_three_new_lists(pipe: Pipe) -> None:
    arguments: tuple[list[int], ...] = ([pipe[0]], [], [])
    result = fdwait.select(*arguments, 0)
    assert result == ([], [], [])
    assert type(result) is tuple
    lists = {id(x) for x in (*result, *arguments)}
    assert len(lists) == 6


def test_time_out_none_and_left_out_wait(pipe: Pipe) -> None:
    r, w = pipe
    for timeout in ([None], []):
        with lasts(0.09, 0.4):
            writer = Task(os.write, w, b"x", delay=0.1)
            assert fdwait.select([r], [], [], *timeout) == ([r], [], [])
        writer.result()
        os.read(r, 1)


def test_no_descriptors_is_a_sleep() -> None:
    with lasts(0.1, 0.15):
        assert fdwait.select([], [], [], 0.1) == ([], [], [])


@pytest.mark.parametrize("count", [1, 2, 62, 63, 64, 65, 200])
def test_each_place_in_a_list(count: int, own: Owner, place: Callable[[int], int]) -> None:
    pipes = [own.pipe() for _ in range(count)]
    readers = [place(r) for r, _ in pipes]
    for fd, (_, w) in zip(readers, pipes, strict=True):
        os.write(w, b"x")
        assert fdwait.select(readers, [], [], 0) == ([fd], [], [])
        assert fdwait.select(readers, [], [], 5) == ([fd], [], [])
        os.read(fd, 1)
    assert fdwait.select(readers, [], [], 0) == ([], [], [])
    assert fdwait.select(readers, [], [], 0.001) == ([], [], [])


@pytest.mark.parametrize("at", [0, 30, 61, 62, 63])
def test_one_closed_descriptor_among_many(at: int, own: Owner, place: Callable[[int], int]) -> None:
    readers = [place(own.pipe()[0]) for _ in range(64)]
    own.close(readers[at])
    for timeout in 0, 5, None:
        with lasts(0, 0.1), pytest.raises(OSError, match=str(readers[at])) as caught:
            fdwait.select(readers, [], [], timeout)
        assert caught.value.errno == errno.EBADF
    del readers[at]
    assert fdwait.select(readers, [], [], 0) == ([], [], [])


def test_b009_bad_calls_raise_what_the_interpreters_own_raises(own: Owner) -> None:
    r, _ = own.pipe()
    closed = os.dup(r)
    os.close(closed)
    for arguments, error in [
        (([r], [], [], -1), ValueError),
        (([r], [], [], -1e-12), ValueError),
        (([r], [], [], float("nan")), ValueError),
        (([r], [], [], "1"), TypeError),
        (([r], [], [], decimal.Decimal(1)), TypeError),
        (([r], [], [], fractions.Fraction(1)), TypeError),
        (([closed], [], [], 1), OSError),
        (([object()], [], [], 1), TypeError),
        ((None, [], [], 1), TypeError),
        (([1.5], [], [], 1), TypeError),
    ]:
        with pytest.raises(error) as caught:
            fdwait.select(*arguments)
        assert outcome(select.select, arguments) == (
            type(caught.value),
            getattr(caught.value, "errno", None),
        )
    assert fdwait.select([r], [], [], -0.0) == ([], [], [])
    with lasts(1, 0.2):
        assert fdwait.select([r], [], [], True) == ([], [], [])


def test_b011_hang_up_error_and_out_of_band(own: Owner, place: Callable[[int], int]) -> None:
    r, w = own.pipe()
    r = place(r)
    own.close(w)
    assert fdwait.select([r], [r], [r], 1) == ([r], [], [])

    r, w = own.pipe()
    w = place(w)
    own.close(r)
    assert fdwait.select([w], [w], [w], 1) == ([w], [w], [])

    with socket.create_server(("127.0.0.1", 0)) as server:
        a = socket.create_connection(server.getsockname())
        b, _ = server.accept()
    with a, b:
        a.send(b"!", socket.MSG_OOB)
        fd = place(own.dup(b.fileno()))
        assert fdwait.select([], [], [fd], 5) == ([], [], [fd])
        assert fdwait.select([fd], [fd], [fd], 1) == ([], [fd], [fd])


def test_b015_the_callers_objects_in_the_callers_order(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"x")
    first, second = HasFileno(r), HasFileno(r)
    ready, writable, _ = fdwait.select([second, r, first, second], [first, HasFileno(w)], [], 0)
    assert len(ready) == 4
    for got, given in zip(ready, [second, r, first, second], strict=True):
        assert got is given
    assert [x.fileno() for x in writable] == [w]
    for collection in (x for x in [first]), {first}, (first,), {first: None}:
        assert fdwait.select(collection, [], [], 0)[0] == [first]


def test_b015_a_list_that_changes_under_the_call(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"x")

    class Grows:
        def fileno(self) -> int:
            if len(items) < 100:
                items.append(r)
            return r

    class Shrinks:
        def fileno(self) -> int:
            items.clear()
            return r

    # As in select.select: what fileno() adds may be seen or not, and nothing crashes.
    for each in Grows, Shrinks:
        items: list[Any] = [each(), r, r]
        first = items[0]
        theirs = None if r > 1023 else select.select(items[:1], [], [], 0)
        items = [first, r, r]
        ready, _, _ = fdwait.select(items, [], [], 0)
        assert ready[0] is first
        assert all(x is first or x == r for x in ready)
        assert theirs is None or theirs[0] == [first]


def test_b017_five_thousand_descriptors(own: Owner, rounds: Callable[[int, int], int]) -> None:
    room = raise_limit(12000) - len(descriptors()) - 100
    count = min(5000, room // 2)
    pipes = [own.pipe() for _ in range(count)]
    readers = [r for r, _ in pipes]
    expected = []
    for i in range(7):
        r, w = pipes[i * (count - 1) // 6]
        os.write(w, b"x")
        expected.append(r)
    before = len(descriptors())
    times = []
    for _ in range(rounds(50, 200)):
        start = time.perf_counter()
        assert fdwait.select(readers, [], [], 1) == (expected, [], [])
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 0.02 * 2
    assert len(descriptors()) == before


def test_results_are_the_descriptors_that_were_asked_for(own: Owner) -> None:
    """Whatever becomes of the caller's list during the wait."""
    pipes = [own.pipe() for _ in range(3)]
    readers = [r for r, _ in pipes]
    second = readers[1]
    with lasts(0.09, 0.4):

        def shorten_and_write() -> None:
            del readers[0], readers[0], readers[0]
            os.write(pipes[1][1], b"x")

        task = Task(shorten_and_write, delay=0.1)
        assert fdwait.select(readers, [], [], 5) == ([second], [], [])
    task.result()
