"""A machine opens, duplicates, moves, closes, writes and reads descriptors at random, and asks every
entry point about them. A model that knows pipes and sockets says what is right.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support import Owner, descriptors, no_free_descriptor

import fdwait
from fdwait import READ, WRITE, FdWaiter


@dataclass(eq=False)
class Open:
    """One end of a pipe or socket pair: the open file, however many numbers it has."""

    reads: bool
    writes: bool
    numbers: set[int] = field(default_factory=set)
    held: bytes = b""  # what can be read here
    peer: Open | None = None

    @property
    def alive(self) -> bool:
        return bool(self.numbers)

    def readable(self) -> bool:
        if not self.reads:  # the write end of a pipe: select says readable at an error
            return not self.peer.alive
        return bool(self.held) or not self.peer.alive

    def writable(self) -> bool:
        return self.writes  # the machine never fills one, and without a reader it is writable too

    def ready(self, events: int) -> bool:
        return bool((events & READ and self.readable()) or (events & WRITE and self.writable()))


@dataclass(eq=False)
class Watched:
    waiter: FdWaiter
    file: Open


def connect(own: Owner, kind: str) -> tuple[tuple[int, Open], tuple[int, Open]]:
    if kind == "pipe":
        (r, w), ends = own.pipe(), (Open(True, False), Open(False, True))
    else:
        a, b = socket.socketpair()
        r, w = own(a.detach()), own(b.detach())
        ends = Open(True, True), Open(True, True)
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    return (r, ends[0]), (w, ends[1])


class Descriptors(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.own = Owner()
        self.at: dict[int, Open] = {}
        self.watched: list[Watched] = []
        self.freed: list[int] = []

    def teardown(self) -> None:
        for each in self.watched:
            each.waiter.close()
        self.own.close_all()

    def put(self, number: int, file: Open) -> None:
        file.numbers.add(number)
        self.at[number] = file
        if number in self.freed:
            self.freed.remove(number)

    def free(self, number: int) -> None:
        self.at.pop(number).numbers.remove(number)
        self.freed.append(number)

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.at)))

    # ---- what changes ----

    @precondition(lambda self: len(self.at) < 12)
    @rule(kind=st.sampled_from(["pipe", "socketpair"]), high=st.booleans())
    def open(self, kind: str, high: bool) -> None:
        for number, file in connect(self.own, kind):
            self.put(self.own.up(number) if high else number, file)

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def dup(self, data: st.DataObject) -> None:
        number = self.pick(data)
        self.put(self.own.dup(number), self.at[number])

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def dup_over(self, data: st.DataObject) -> None:
        """The number gets another open file in one step."""
        number, over = self.pick(data), self.pick(data)
        if number == over:
            return
        file = self.at[number]
        self.free(over)
        os.dup2(number, over)
        self.put(over, file)

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        number = self.pick(data)
        self.free(number)
        self.own.close(number)

    @precondition(lambda self: self.at)
    @rule(data=st.data(), size=st.integers(1, 100))
    def write(self, data: st.DataObject, size: int) -> None:
        number = self.pick(data)
        file = self.at[number]
        if file.writes and file.peer.alive and len(file.peer.held) < 3000:
            os.write(number, b"x" * size)
            file.peer.held += b"x" * size

    @precondition(lambda self: self.at)
    @rule(data=st.data(), size=st.integers(1, 100))
    def read(self, data: st.DataObject, size: int) -> None:
        number = self.pick(data)
        file = self.at[number]
        if file.reads and file.readable():
            try:
                got = os.read(number, size)
            except ConnectionResetError:  # a socket that was closed with bytes unread in it
                return
            assert got == file.held[:size]
            file.held = file.held[size:]

    @precondition(lambda self: self.at)
    @rule(data=st.data(), limit=st.integers(0, 5000))
    def drain(self, data: st.DataObject, limit: int) -> None:
        number = self.pick(data)
        file = self.at[number]
        if not file.reads:
            return
        held = file.held
        try:
            result = fdwait.drain(number, timeout=0, limit=limit)
        except ConnectionResetError as error:
            result = error.drained
            assert not file.peer.alive
            assert result.data == held[: result.total]
            file.held = held[result.total :]
            return
        file.held = held[limit:]
        assert result.data == held[:limit]
        if len(held) >= limit:
            assert result.end is fdwait.End.LIMIT
        else:
            assert result.end is (fdwait.End.TIMEOUT if file.peer.alive else fdwait.End.EOF)

    # ---- what asks ----

    @precondition(lambda self: self.at and len(self.watched) < 8)
    @rule(data=st.data(), events=st.sampled_from([READ, WRITE, READ | WRITE]), emfile=st.booleans())
    def watch(self, data: st.DataObject, events: int, emfile: bool) -> None:
        number = self.pick(data)
        if emfile:
            with no_free_descriptor():
                waiter = FdWaiter(number, events)
        else:
            waiter = FdWaiter(number, events)
        # Its own descriptor may have taken a number that was closed before.
        self.freed = [fd for fd in self.freed if not is_open(fd)]
        self.watched.append(Watched(waiter, self.at[number]))

    @precondition(lambda self: self.watched)
    @rule(data=st.data())
    def unwatch(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.watched))
        self.watched.remove(each)
        each.waiter.close()

    @precondition(lambda self: self.at)
    @rule(data=st.data(), timeout=st.sampled_from([0, 0.0005]))
    def select(self, data: st.DataObject, timeout: float) -> None:
        some = st.lists(st.sampled_from(sorted(self.at)), max_size=12)
        readers, writers = data.draw(some), data.draw(some)
        assert fdwait.select(readers, writers, [], timeout) == (
            [fd for fd in readers if self.at[fd].readable()],
            [fd for fd in writers if self.at[fd].writable()],
            [],
        )

    @precondition(lambda self: self.freed and self.at)
    @rule(data=st.data())
    def select_with_a_closed_one(self, data: st.DataObject) -> None:
        lists: list[Any] = [[self.pick(data)], [], []]
        lists[data.draw(st.integers(0, 2))].append(self.freed[-1])
        assert_bad(fdwait.select, *lists, 0)

    @precondition(lambda self: self.freed)
    @rule()
    def ask_about_a_closed_one(self) -> None:
        for call in fdwait.wait_readable, fdwait.wait_writable, FdWaiter, fdwait.drain:
            assert_bad(call, self.freed[-1])

    @invariant()
    def every_wait_is_right(self) -> None:
        for number, file in self.at.items():
            assert fdwait.wait_readable(number, 0) is file.readable()
            assert fdwait.wait_writable(number, 0) is file.writable()

    @invariant()
    def every_waiter_is_right(self) -> None:
        for each in self.watched:
            waiter, number = each.waiter, each.waiter.fd
            if self.at.get(number) is each.file:
                assert waiter.wait(0) is each.file.ready(waiter.events)
            elif not self.blind(each):
                assert_bad(waiter.wait, 0)

    def blind(self, each: Watched) -> bool:
        """The blind spot of test_reused_number: the old file is alive elsewhere and epoll fires for it, for
        a hang-up also unasked; and what has the number now is ready, or may be: it can be an epoll of ours.
        """
        waiter, file = each.waiter, each.file
        now = self.at.get(waiter.fd)
        fires = file.alive and (file.ready(waiter.events) or not file.peer.alive)
        matches = now.ready(waiter.events) if now else is_open(waiter.fd)
        return waiter.backend == "epoll" and fires and matches


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def assert_bad(call: Callable[..., object], *args: object) -> None:
    with pytest.raises(OSError) as caught:
        call(*args)
    assert caught.value.errno == errno.EBADF


@pytest.mark.timeout(1200)  # it takes seconds, but for a failure: that is made as small as can be
def test_descriptors_against_a_model(rounds: Callable[[int, int], int]) -> None:
    before = descriptors()
    run_state_machine_as_test(
        Descriptors,
        settings=settings(
            max_examples=rounds(100, 3000),
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )
    assert descriptors() == before
