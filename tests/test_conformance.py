"""What every waiter says of every kind of descriptor in every state is what the kernel's select says of it.

The kernel is asked about a number below 1024, where select.select() can be; then the same must be true of the same
open file at a number above 1023.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator

import pytest
from states import STATES, file, pair, tcp, terminal
from support import BACKEND, LINUX, Owner, lasts, no_free_descriptor

import fdwait
from fdwait import READ, WRITE, FdWaiter
from fdwait._native import ffi, lib

Make = Callable[[Owner], int]
DIRECTIONS = {"read": READ, "write": WRITE, "both": READ | WRITE}


def built_in() -> list[str]:
    names, i = [], 0
    while (name := lib.fdw_backend_name(i)) != ffi.NULL:
        names.append(ffi.string(name).decode())
        i += 1
    return names


@pytest.fixture(params=[BACKEND] if BACKEND else built_in())
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each way of waiting that is built in; only the one that FDWAIT_BACKEND forces, if it does."""
    assert lib.fdw_force_backend(request.param.encode()) == 0
    yield request.param
    assert lib.fdw_force_backend(BACKEND.encode() if BACKEND else ffi.NULL) == 0


@pytest.fixture(params=STATES.values(), ids=STATES)
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@pytest.fixture(params=DIRECTIONS.values(), ids=DIRECTIONS)
def events(request: pytest.FixtureRequest) -> int:
    return request.param


def kernel_says(fd: int, events: int) -> bool:
    ready = select.select([fd] * bool(events & READ), [fd] * bool(events & WRITE), [], 0)
    return any(ready)


# ---- states ----


def test_waiter(make: Make, events: int, place: Callable[[int], int], backend: str, own: Owner) -> None:
    fd = make(own)
    expected = kernel_says(fd, events)
    fd = place(fd)
    with FdWaiter(fd, events) as waiter:
        assert waiter.wait(0) is expected
        assert waiter.wait(5 if expected else 0.001) is expected
        assert waiter.wait(0) is expected
        assert waiter.backend in (backend, "always")


def test_waiter_without_a_free_descriptor(make: Make, events: int, place: Callable[[int], int], own: Owner) -> None:
    fd = make(own)
    expected = kernel_says(fd, events)
    fd = place(fd)
    with no_free_descriptor(), FdWaiter(fd, events) as waiter:
        assert waiter.wait(0) is expected
        assert waiter.wait(5 if expected else 0.001) is expected
        assert waiter.backend not in ("epoll", "kqueue")


def test_wait_functions(make: Make, place: Callable[[int], int], own: Owner) -> None:
    fd = make(own)
    expected = kernel_says(fd, READ), kernel_says(fd, WRITE)
    fd = place(fd)
    assert (fdwait.wait_readable(fd, 0), fdwait.wait_writable(fd, 0)) == expected
    assert fdwait.wait_readable(fd, 5 if expected[0] else 0.001) is expected[0]
    assert fdwait.wait_writable(fd, 5 if expected[1] else 0.001) is expected[1]


def test_select(make: Make, place: Callable[[int], int], own: Owner) -> None:
    fd = make(own)
    counts = [len(ready) for ready in select.select([fd], [fd], [fd], 0)]
    fd = place(fd)
    expected = tuple([fd] * count for count in counts)
    assert fdwait.select([fd], [fd], [fd], 0) == expected
    assert fdwait.select([fd], [fd], [fd], 5 if any(counts) else 0.001) == expected
    for i in range(3):  # each list alone, which may take another way through the code
        lists = [[fd] if i == j else [] for j in range(3)]
        timeout = 5 if counts[i] else 0.001
        assert fdwait.select(*lists, timeout)[i] == expected[i]


# ---- a state that changes under the waiter ----


@pytest.mark.parametrize("connect", [Owner.pipe, pair, tcp, terminal])
def test_changes(
    connect: Callable[[Owner], tuple[int, int]],
    place: Callable[[int], int],
    backend: str,
    own: Owner,
) -> None:
    fd, peer = connect(own)
    low = own.dup(fd)
    fd = place(fd)
    with FdWaiter(fd) as waiter:

        def both_say(ready: bool) -> None:
            """Wait for what was set off to arrive, then compare."""
            assert bool(select.select([low], [], [], 5 if ready else 0)[0]) is ready
            assert waiter.wait(0) is ready
            assert fdwait.wait_readable(fd, 0) is ready
            assert fdwait.select([fd], [], [], 0)[0] == [fd] * ready

        both_say(False)
        os.write(peer, b"xy")
        both_say(True)
        os.read(fd, 1)
        both_say(True)
        os.read(fd, 1)
        both_say(False)
        os.write(peer, b"x")
        own.close(peer)
        both_say(True)
        os.read(fd, 1)
        both_say(True)


# ---- closed, and closed and reused ----


def assert_bad(call: Callable[..., object], *args: object) -> None:
    """EBADF, and at once."""
    with lasts(0, 0.1), pytest.raises(OSError) as caught:
        call(*args)
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("duplicate", [False, True], ids=["", "duplicate lives"])
def test_closed(make: Make, duplicate: bool, place: Callable[[int], int], backend: str, own: Owner) -> None:
    fd = place(make(own))
    with FdWaiter(fd) as reader, FdWaiter(fd, WRITE) as writer:
        if duplicate:
            own.dup(fd)
        own.close(fd)
        for waiter in reader, writer:
            assert_bad(waiter.wait, 0)
            assert_bad(waiter.wait, 0.001)
            assert_bad(waiter.wait, 5)
    for function in fdwait.wait_readable, fdwait.wait_writable:
        assert_bad(function, fd, 0)
        assert_bad(function, fd, 5)
    for i in range(3):
        assert_bad(fdwait.select, *[[fd] if i == j else [] for j in range(3)], 0)
        assert_bad(fdwait.select, *[[fd] if i == j else [] for j in range(3)], 5)
    assert_bad(FdWaiter, fd)


def new_pipe(own: Owner) -> int:
    return own.pipe()[0]


def new_full_pipe(own: Owner) -> int:
    r, w = own.pipe()
    os.write(w, b"x")
    return r


@pytest.mark.parametrize("other", [new_pipe, new_full_pipe], ids=["by idle", "by ready"])
@pytest.mark.parametrize("duplicate", [False, True], ids=["", "duplicate lives"])
def test_reused_number(
    make: Make,
    duplicate: bool,
    other: Make,
    place: Callable[[int], int],
    backend: str,
    own: Owner,
) -> None:
    fd = place(make(own))
    ready = other is new_full_pipe
    with FdWaiter(fd) as waiter:
        was_ready = waiter.wait(0)
        if duplicate:
            own.dup(fd)
        os.dup2(other(own), fd)  # closes and reuses the number in one step
        if waiter.backend == "epoll" and duplicate and was_ready and ready:
            # The one blind spot: the duplicate keeps the old entry firing, and the cheap look that confirms it
            # (is the number open?) cannot tell one ready file from another.
            assert waiter.wait(0) is True
        else:
            assert_bad(waiter.wait, 0)
            assert_bad(waiter.wait, 0.001)
            assert_bad(waiter.wait, 5)
        # New calls mean the new file.
        assert fdwait.wait_readable(fd, 0) is ready
        assert fdwait.select([fd], [], [], 0)[0] == [fd] * ready
        with FdWaiter(fd) as fresh:
            assert fresh.wait(0) is ready


def new_file(own: Owner) -> int:
    return file(own, b"data")


def new_eventfd(own: Owner) -> int:
    return own(os.eventfd(0))


SAME_KIND = {"pipe": new_pipe, "socketpair": lambda own: pair(own)[0], "file": new_file}
SAME_KIND |= {"PTY master": lambda own: terminal(own)[0]}
if LINUX:
    SAME_KIND |= {"eventfd": new_eventfd}


@pytest.mark.parametrize("duplicate", [False, True], ids=["", "duplicate lives"])
@pytest.mark.parametrize("kind", SAME_KIND)
def test_number_reused_by_the_same_kind(
    kind: str, duplicate: bool, place: Callable[[int], int], backend: str, own: Owner
) -> None:
    if backend in ("poll", "select") and kind in ("PTY master", "eventfd"):
        pytest.skip("documented: fstat() cannot tell PTY masters, or eventfds, apart")
    open_one = SAME_KIND[kind]
    fd = place(open_one(own))
    with FdWaiter(fd) as waiter:
        if duplicate:
            own.dup(fd)
        os.dup2(open_one(own), fd)
        assert_bad(waiter.wait, 0)
        assert_bad(waiter.wait, 5)


@pytest.mark.parametrize("end", ["read", "write"])
def test_number_reused_by_the_other_end(end: str, place: Callable[[int], int], backend: str, own: Owner) -> None:
    """The two ends of a pipe have the same inode."""
    ends = own.pipe()
    fd, other = ends if end == "read" else ends[::-1]
    fd = place(fd)
    with FdWaiter(fd) as waiter:
        own.dup(fd)
        os.dup2(other, fd)
        assert_bad(waiter.wait, 0)
        assert_bad(waiter.wait, 5)
