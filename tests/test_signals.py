"""Signals: handlers run, waits go on, Ctrl-C ends every call, and no byte is lost to it."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from entry import ENTRIES, Entry
from support import SLACK, Owner, Task, fill, lasts, prints_pattern, stretch

import fdwait
from fdwait import End, FdWaiter, drain

# The watchdog must leave SIGALRM to these tests.
pytestmark = pytest.mark.timeout(method="thread")

Pipe = tuple[int, int]
each_entry = pytest.mark.parametrize("wait", ENTRIES.values(), ids=ENTRIES)


@pytest.fixture
def pipe(high_pipe: Pipe) -> Pipe:
    return high_pipe


@contextmanager
def alarms(handler: Callable[[], object], first: float, interval: float = 0) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, first, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- handlers that return ----


@each_entry
def test_b052_a_wait_goes_on_with_what_is_left(wait: Entry, pipe: Pipe) -> None:
    ran: list[int] = []
    # Six come; two that a busy machine delivers together run the handler once.
    with alarms(lambda: ran.append(1), 0.09, 0.09), lasts(0.55, 0.15):
        assert wait(pipe[0], 0.55) is False
    assert len(ran) >= 5


@each_entry
def test_a_shower_of_signals(wait: Entry, pipe: Pipe) -> None:
    r, w = pipe
    ran: list[int] = []
    with alarms(lambda: ran.append(1), 0.001, 0.001):
        with lasts(0.15, 0.15):
            assert wait(r, 0.15) is False
        writer = Task(os.write, w, b"x", delay=0.05)
        assert wait(r, 10) is True
    writer.result()
    assert len(ran) > 20


@each_entry
def test_a_handler_runs_during_the_wait_not_after_it(wait: Entry, pipe: Pipe) -> None:
    r, w = pipe
    with alarms(lambda: os.write(w, b"x"), 0.1), lasts(0.09, 0.4):
        assert wait(r, 10) is True


@each_entry
def test_a_handler_that_outlives_the_deadline_is_followed_by_a_look(wait: Entry, pipe: Pipe) -> None:
    r, w = pipe

    def handler() -> None:
        time.sleep(0.2)
        os.write(w, b"x")

    with alarms(handler, 0.05):
        assert wait(r, 0.1) is True


@each_entry
def test_an_exception_from_a_handler_comes_out(wait: Entry, pipe: Pipe) -> None:
    class Custom(Exception):
        pass

    def handler() -> None:
        raise Custom

    with alarms(handler, 0.1), lasts(0.09, 0.3), pytest.raises(Custom):
        wait(pipe[0], 10)


@each_entry
def test_a_handler_that_closes_the_descriptor(wait: Entry, own: Owner) -> None:
    r, _ = own.pipe()
    with alarms(lambda: own.close(r), 0.1), lasts(0.09, 0.5), pytest.raises(OSError) as caught:
        wait(r, 10)
    assert caught.value.errno == 9


def test_a_handler_may_use_the_package(pipe: Pipe, own: Owner) -> None:
    r, w = pipe
    inner_r, inner_w = own.pipe()
    os.write(inner_w, b"inner")
    seen: list[object] = []

    def handler() -> None:
        seen.append(drain(inner_r, timeout=0).data)
        seen.append(fdwait.select([r, inner_r], [], [], 0))
        os.write(w, b"x")

    with alarms(handler, 0.1), FdWaiter(r) as waiter:
        assert waiter.wait(10) is True
    assert seen == [b"inner", ([], [], [])]


@each_entry
def test_a_signal_that_lands_on_another_thread(wait: Entry, pipe: Pipe) -> None:
    """Its handler runs in the main thread, which is asleep: it has to look up now and then."""
    r, w = pipe
    sleeper = threading.Event()
    other = Task(sleeper.wait, 20)
    with alarms(lambda: os.write(w, b"x"), 0):
        with lasts(0.09, 0.4):
            sender = Task(signal.pthread_kill, other.ident, signal.SIGALRM, delay=0.1)
            assert wait(r, 10) is True
        sender.result()
    sleeper.set()
    other.result()


def test_a_thread_that_is_not_the_main_one_sleeps_through(pipe: Pipe) -> None:
    r, w = pipe
    waiting = Task(FdWaiter(r).wait, 10)
    with alarms(lambda: None, 0.02, 0.02):
        time.sleep(0.3)
    os.write(w, b"x")
    assert waiting.result() is True


# ---- Ctrl-C ----


class CtrlC:
    """Sends SIGINT `delay` seconds from now; `latency` says how long the KeyboardInterrupt took."""

    def __init__(self, delay: float, on_another_thread: bool) -> None:
        self.delay, self.other = delay, on_another_thread
        self.latency = 0.0

    def __enter__(self) -> CtrlC:
        self._done = threading.Event()
        self._bystander = Task(self._done.wait, 30)
        self._sender = Task(self._send, delay=self.delay)
        return self

    def _send(self) -> float:
        sent = time.monotonic()
        if self.other:
            signal.pthread_kill(self._bystander.ident, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
        return sent

    def __exit__(self, *_: object) -> None:
        arrived = time.monotonic()
        self._done.set()
        with suppress(KeyboardInterrupt):  # the call came back before it: the test fails, not the run
            self.latency = arrived - self._sender.result()


@pytest.fixture(params=[False, True], ids=["main thread", "another thread"])
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[Callable[[float], CtrlC]]:
    """ctrl_c(delay): a SIGINT that lands on the main thread, or on another one."""
    made: list[CtrlC] = []

    def make(delay: float) -> CtrlC:
        made.append(CtrlC(delay, request.param))
        return made[-1]

    yield make
    latencies = [c.latency for c in made]
    assert statistics.median(latencies) < 0.3, latencies
    assert max(latencies) < 0.3 * SLACK


Interrupts = Callable[[float], CtrlC]


@each_entry
def test_b054_ends_every_wait(wait: Entry, pipe: Pipe, ctrl_c: Interrupts) -> None:
    r, w = pipe
    with pytest.raises(KeyboardInterrupt), ctrl_c(0.1):
        wait(r, None)
    os.write(w, b"x")
    assert wait(r, 10) is True  # and a second attempt works


def test_b054_ends_a_wait_for_room(pipe: Pipe, ctrl_c: Interrupts) -> None:
    fill(pipe[1])
    with pytest.raises(KeyboardInterrupt), ctrl_c(0.1):
        fdwait.wait_writable(pipe[1])


def interrupted(ctrl_c: Interrupts, delay: float, fd: int, **options: object) -> fdwait.Drained:
    """drain() until Ctrl-C; what the KeyboardInterrupt carries."""
    with pytest.raises(KeyboardInterrupt) as caught, ctrl_c(delay):
        drain(fd, **options)
    result = caught.value.drained  # type: ignore[attr-defined]
    assert isinstance(result, fdwait.Drained)
    assert result.end is End.STOPPED
    assert result.total == result.kept + result.elided
    return result


def test_b054_in_a_silence_no_byte_is_lost(pipe: Pipe, own: Owner, ctrl_c: Interrupts) -> None:
    r, w = pipe
    os.write(w, b"before ")
    first = interrupted(ctrl_c, 0.2, r)
    assert first.data == b"before "
    os.write(w, b"after")
    own.close(w)
    second = drain(r)
    assert (second.data, second.end) == (b"after", End.EOF)


def test_b054_in_a_flood_no_byte_is_lost(
    start: Callable[..., tuple[object, int]],
    place: Callable[[int], int],
    ctrl_c: Interrupts,
    rounds: Callable[[int, int], int],
) -> None:
    _, out = start(prints_pattern(), place)
    at = len(drain(out, limit=10).data)  # it runs
    for i in range(rounds(2, 30)):
        result = interrupted(ctrl_c, 0.05 + 0.013 * i % 0.1, out)
        assert result.total > 2**20
        assert result.data == stretch(at, result.total)
        at += result.total
    assert drain(out, limit=2**20).data == stretch(at, 2**20)


def test_b054_in_a_flood_into_a_window(start: Callable[..., tuple[object, int]], ctrl_c: Interrupts) -> None:
    _, out = start(prints_pattern())
    result = interrupted(ctrl_c, 0.2, out, keep=fdwait.Window(1000, 1000))
    assert result.kept <= 2000 < result.total
    assert drain(out, limit=2**20).data == stretch(result.total, 2**20)


def test_b054_in_a_linger_no_byte_is_lost(
    pipe: Pipe, own: Owner, start: Callable[..., tuple[object, int]], ctrl_c: Interrupts
) -> None:
    r, w = pipe  # we hold the write end, as a background process would
    process, _ = start("exit 0")
    os.write(w, b"out ")
    first = interrupted(ctrl_c, 0.3, r, process=process, linger=30, linger_cap=60)
    assert first.data == b"out "
    os.write(w, b"late")
    own.close(w)
    second = drain(r, process=process)
    assert (second.data, second.end) == (b"late", End.EOF)


def test_b054_what_a_stream_held_is_not_lost(pipe: Pipe, own: Owner, ctrl_c: Interrupts) -> None:
    r, w = pipe
    os.write(w, b"one\ntwo\n")
    with os.fdopen(r, "rb", closefd=False) as stream:
        assert stream.readline() == b"one\n"
        first = interrupted(ctrl_c, 0.1, stream)
        os.write(w, b"three\n")
        own.close(w)
        assert first.data + drain(stream).data == b"two\nthree\n"


def test_b056_in_a_flood_beside_a_thread_that_spins(
    start: Callable[..., tuple[object, int]], ctrl_c: Interrupts
) -> None:
    spinning = [True]

    def spin() -> None:
        while spinning:
            pass

    _, out = start(prints_pattern())
    spinner = Task(spin)
    result = interrupted(ctrl_c, 0.3, out, keep=fdwait.Window(1000, 1000))
    spinning.clear()
    spinner.result()
    # A trip through the interpreter for each read would cost 5 ms each: some 10 MB/s.
    assert result.total > 20_000_000


def test_an_error_of_a_handler_carries_what_was_read(pipe: Pipe) -> None:
    r, w = pipe
    os.write(w, b"some")

    def handler() -> None:
        raise ZeroDivisionError

    with alarms(handler, 0.1), pytest.raises(ZeroDivisionError) as caught:
        drain(r)
    result = caught.value.drained  # type: ignore[attr-defined]
    assert (result.data, result.end) == (b"some", None)


def test_ctrl_c_just_before_the_call(pipe: Pipe) -> None:
    """A signal that arrives between Python's last look and the sleep: the wait has to notice."""
    for name, wait in ENTRIES.items():
        if name == "FdWaiter on poll":
            continue  # the interrupt could meet the test's own preparations
        with pytest.raises(KeyboardInterrupt), lasts(0, 0.4):
            threading.Thread(target=signal.raise_signal, args=(signal.SIGINT,)).start()
            wait(pipe[0], 5)
