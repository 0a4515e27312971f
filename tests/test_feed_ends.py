"""feed(): time-outs, stops, signals, readers that go and descriptors that fail, each with its exact count."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import (
    BACKEND,
    LINUX,
    Owner,
    Task,
    cpu_below,
    fill,
    lasts,
    let_it_sleep,
    no_free_descriptor,
    python,
    run_program,
    stretch,
    until_full,
)
from test_feed import KINDS, LARGE, MIB, check_taken, connect, each_flag, each_kind, read_exactly

from fdwait import Stop, drain, feed

Pipe = tuple[int, int]
Place = Callable[[int], int]
Rounds = Callable[[int, int], int]

DATA = stretch(0, 8 * MIB)
EPOLL = LINUX and BACKEND in (None, "epoll")
each_kind_of_stop = pytest.mark.parametrize("with_stop", [False, True], ids=["no stop", "stop"])


def taken_of(error: pytest.ExceptionInfo[BaseException]) -> int:
    taken: int = error.value.taken  # type: ignore[attr-defined]
    return taken


# ---- time-outs ----


@each_kind
@each_flag
@each_kind_of_stop
def test_b129_a_time_out_has_the_exact_count(kind: str, flag: bool, with_stop: bool, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd = place(fd)
    with lasts(0.05, 0.3), pytest.raises(TimeoutError) as late:
        feed(fd, DATA, timeout=0.05, stop=Stop() if with_stop else None)
    taken = taken_of(late)
    assert 0 < taken < len(DATA)
    assert str(taken) in str(late.value)
    check_taken(kind, fd, peer, DATA[:taken])


@pytest.mark.parametrize("kind", ["pipe", "socketpair"])
@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, False, -1, -1e300, float("-inf")])
def test_b061_a_spent_deadline_still_fills_what_is_free(timeout: float, kind: str, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    fd = place(fd)
    for _ in range(2):
        with lasts(0, 0.1), pytest.raises(TimeoutError) as late:
            feed(fd, DATA, timeout=timeout)
        taken = taken_of(late)
        assert taken > 1000
        with pytest.raises(BlockingIOError):  # there was no more room
            os.set_blocking(fd, False)
            os.write(fd, bytes(4096))
        os.set_blocking(fd, True)
        with pytest.raises(TimeoutError) as again:
            feed(fd, DATA, timeout=timeout)
        assert taken_of(again) == 0
        assert read_exactly(peer, taken) == DATA[:taken]
    assert feed(fd, b"x", timeout=timeout) == 1


@pytest.mark.parametrize("kind", ["master", "slave"])
def test_a_spent_deadline_still_writes_to_a_terminal(kind: str, own: Owner) -> None:
    fd, peer = connect(kind, own)
    assert feed(fd, b"one\n", timeout=0) == 4
    check_taken(kind, fd, peer, b"one\n")


@each_kind_of_stop
def test_a_spent_deadline_takes_a_mebibyte_at_most(with_stop: bool, tmp_path: Path, own: Owner) -> None:
    """A file has room for everything, and still the call comes back."""
    fd = own(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    assert feed(fd, bytes(MIB), timeout=0, stop=Stop() if with_stop else None) == MIB
    with pytest.raises(TimeoutError) as late:
        feed(fd, bytes(8 * MIB), timeout=0, stop=Stop() if with_stop else None)
    assert taken_of(late) == MIB


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 1e18, 2**62, 1e9, 10.0])
def test_b059_for_ever_and_nearly(timeout: float | None, high_pipe: Pipe) -> None:
    r, w = high_pipe
    full = fill(w)
    with lasts(0.09, 0.3):
        reader = Task(read_exactly, r, full + 5, delay=0.1)
        assert feed(w, b"after", timeout=timeout) == 5
    assert reader.result().endswith(b"fafter")


def test_b059_nan(high_pipe: Pipe) -> None:
    with pytest.raises(ValueError):
        feed(high_pipe[1], b"x", timeout=float("nan"))
    check_taken("pipe", high_pipe[1], high_pipe[0], b"")


@pytest.mark.parametrize("timeout", ["1", b"1", [1], object(), 1j])
def test_a_timeout_of_another_type(timeout: float, high_pipe: Pipe) -> None:
    with pytest.raises(TypeError):
        feed(high_pipe[1], b"x", timeout=timeout)
    check_taken("pipe", high_pipe[1], high_pipe[0], b"")


@each_kind_of_stop
def test_never_early(with_stop: bool, high_pipe: Pipe) -> None:
    fill(high_pipe[1])
    stop = Stop() if with_stop else None
    for i in range(1, 50):
        seconds = i * i * 0.9e-6  # odd lengths up to 2 ms
        start = time.monotonic_ns()
        with pytest.raises(TimeoutError):
            feed(high_pipe[1], b"x", timeout=seconds, stop=stop)
        assert time.monotonic_ns() - start >= seconds * 1e9


def test_b063_a_trickle_does_not_stretch_the_time(high_pipe: Pipe) -> None:
    r, w = high_pipe
    read: list[bytes] = []
    done: list[bool] = []

    def trickle() -> None:
        while not done:
            read.append(Task(os.read, r, 8192, delay=0.05).result())

    reader = Task(trickle)
    with lasts(0.5, 0.3), pytest.raises(TimeoutError) as late:
        feed(w, DATA, timeout=0.5)
    done.append(True)
    reader.result()
    received = b"".join(read)
    assert 8192 <= len(received) <= 11 * 8192
    assert received == DATA[: len(received)]
    check_taken("pipe", w, r, DATA[len(received) : taken_of(late)])


def test_progress_does_not_stretch_the_time(own: Owner) -> None:
    """When the time is up, what is left is tried once and in one piece."""
    null = own(os.open(os.devnull, os.O_WRONLY))
    reports: list[int] = []

    def progress(taken: int) -> None:
        reports.append(taken)
        time.sleep(0.01)

    with lasts(0.1, 0.2):
        assert feed(null, bytes(60), block=1, progress=progress, timeout=0.1) == 60
    assert len(reports) <= 12
    with lasts(0.1, 0.2), pytest.raises(TimeoutError) as late:
        feed(null, bytes(4 * MIB), block=1, progress=progress, timeout=0.1)
    assert MIB < taken_of(late) < 2 * MIB


def test_a_caller_may_drop_what_was_taken(high_pipe: Pipe) -> None:
    """The exception is at hand, with its traceback, and the buffer can be resized all the same."""
    data = bytearray(MIB)
    with pytest.raises(TimeoutError) as late:
        feed(high_pipe[1], data, timeout=0)
    del data[: taken_of(late)]
    assert len(data) == MIB - taken_of(late)


def test_an_exception_that_is_kept_in_a_cycle() -> None:
    """Before CPython 3.12.7 the collector crashes on a memoryview that is exported in a cycle (gh-77894)."""
    code = """
        import gc, os
        import fdwait
        def fails(**options):
            try:
                fdwait.feed(fd, data, **options)
                raise SystemExit("it did not fail")
            except (OSError, ZeroDivisionError) as error:
                kept = error  # which has the frame that has it
        r, fd = os.pipe()
        for data in bytes(1 << 20), bytearray(1 << 20), "x" * (1 << 20):
            for stop in None, fdwait.Stop():
                for _ in range(3):
                    fails(timeout=0, stop=stop)
                    os.read(r, 1 << 20)
                    fails(block=10, progress=lambda _: 1 // 0, stop=stop)
        fd = 1000  # closed
        fails()
        gc.collect()
        print("done")
        """
    assert run_program(code) == "done\n"


# ---- stops ----


@each_kind
@pytest.mark.parametrize("descriptors_left", [True, False], ids=["", "no descriptor left"])
def test_b129_a_stop_has_the_exact_count(kind: str, descriptors_left: bool, own: Owner) -> None:
    fd, peer = connect(kind, own)
    fd = own.up(fd)
    stop = Stop()
    if descriptors_left:
        feeding = Task(feed, fd, DATA, stop=stop)
        let_it_sleep()
        with lasts(0, 0.3):
            stop.set()
            taken = feeding.result()
    else:
        with no_free_descriptor():
            feeding = Task(feed, fd, DATA, stop=stop)
            let_it_sleep()
            with lasts(0, 0.3):
                stop.set()
                taken = feeding.result()
    assert 0 < taken < len(DATA)
    check_taken(kind, fd, peer, DATA[:taken])
    assert feed(fd, b"x", stop=stop) == 0  # it stays set
    stop.clear()
    assert feed(fd, b"again", stop=stop) == 5
    check_taken(kind, fd, peer, b"again")


def test_a_stop_amid_a_flood_loses_nothing(high_pipe: Pipe) -> None:
    r, w = high_pipe
    data = memoryview(stretch(0, 64 * MIB))
    stop = Stop()
    at = 0
    reader = Task(drain, r, limit=len(data))
    for _ in range(3):
        stop.clear()
        setter = Task(stop.set, delay=0.01)
        at += feed(w, data[at:], stop=stop)
        setter.result()
    stop.clear()
    at += feed(w, data[at:], stop=stop)
    assert at == len(data)
    assert reader.result().data == data


def test_one_stop_ends_many(own: Owner) -> None:
    stop = Stop()
    tasks = [Task(feed, connect(kind, own)[0], LARGE, stop=stop) for kind in KINDS * 2]
    let_it_sleep()
    with lasts(0, 0.3):
        stop.set()
        assert all(0 < task.result() < len(LARGE) for task in tasks)


def test_stop_and_feed_in_a_race(high_pipe: Pipe, rounds: Rounds) -> None:
    """set() at any moment of the call's life ends it, and the count is exact."""
    r, w = high_pipe
    for i in range(rounds(40, 2000)):
        stop = Stop()
        setter = Task(stop.set, delay=(i % 10) * 0.0001)
        with lasts(0, 1):
            taken = feed(w, DATA, stop=stop, timeout=10)
        setter.result()
        assert drain(r, timeout=0).data == DATA[:taken]


# ---- signals: each a program of its own ----

SIGNALLED = """
    import os, signal, threading, time
    import fdwait
    from support import SLACK, Owner, Task, fill, lasts
    from test_feed import KINDS, check_taken, connect

    data = b"0123456789abcde\\n" * (1 << 19)
    own = Owner()

    def interrupted(*args, seconds=0.1, **options):
        sent = []
        timer = threading.Timer(seconds, lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT)))
        timer.start()
        try:
            fdwait.feed(*args, **options)
        except KeyboardInterrupt as error:
            late = time.monotonic() - sent[0]
            timer.join()
            assert late < 0.3 * SLACK, late
            return error.taken
        raise SystemExit("it was not interrupted")
    """
DONE = """
    own.close_all()
    print("done")
    """


def signalled(code: str, *args: str) -> None:
    assert run_program(SIGNALLED + code + DONE, *args) == "done\n"


@each_kind_of_stop
def test_b054_ctrl_c_has_the_exact_count(with_stop: bool) -> None:
    signalled(f"""
    for kind in KINDS:
        fd, peer = connect(kind, own)
        taken = interrupted(fd, data, stop={"fdwait.Stop()" if with_stop else None}, timeout=30)
        assert 0 < taken < len(data), (kind, taken)
        check_taken(kind, fd, peer, data[:taken])
    """)


def test_b054_ctrl_c_amid_a_flood() -> None:
    """Whose reader takes small pieces, and would go on for long."""
    signalled("""
    r, w = own.pipe()
    reader = Task(lambda: [None for _ in iter(lambda: os.read(r, 100), b"")])
    assert 0 < interrupted(w, bytes(1 << 30)) < 1 << 30
    own.close(w)
    reader.result()
    """)


def test_b054_ctrl_c_leaves_other_threads_alone() -> None:
    signalled("""
    (r, w), (other_r, other_w) = own.pipe(), own.pipe()
    full = fill(other_w)
    other = Task(fdwait.feed, other_w, b"other")
    assert 0 < interrupted(w, data) < len(data)
    assert other.is_alive()
    assert os.read(other_r, full) == b"f" * full
    assert other.result() == 5
    check_taken("pipe", other_w, other_r, b"other")
    """)


def test_an_exception_from_a_handler_is_no_different() -> None:
    signalled("""
    def handler(*_):
        raise RuntimeError("from a handler")
    signal.signal(signal.SIGALRM, handler)
    r, w = own.pipe()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with lasts(0.2, 0.3):
        try:
            fdwait.feed(w, data)
            raise SystemExit("it was not interrupted")
        except RuntimeError as error:
            taken = error.taken
    check_taken("pipe", w, r, data[:taken])
    """)


@each_kind_of_stop
def test_b052_handlers_that_return_change_nothing(with_stop: bool) -> None:
    signalled(f"""
    stop = {"fdwait.Stop()" if with_stop else None}
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    for kind in "pipe", "slave":
        fd, peer = connect(kind, own)
        ticks.clear()
        with lasts(0.25, 0.15):
            try:
                fdwait.feed(fd, data, timeout=0.25, stop=stop)
                raise SystemExit("no time-out")
            except TimeoutError as late:
                taken = late.taken
        assert len(ticks) >= 5, ticks
        check_taken(kind, fd, peer, data[:taken])
    r, w = own.pipe()
    reader = Task(fdwait.drain, r, limit=len(data))
    assert fdwait.feed(w, data, timeout=30, stop=stop) == len(data)
    assert reader.result().data == data
    signal.setitimer(signal.ITIMER_REAL, 0)
    """)


def test_an_interrupt_at_any_moment(rounds: Rounds) -> None:
    """It may come before the first byte and after the last; between them the exception has the exact count."""
    signalled(
        """
    import random
    moments = random.Random(1)
    main = threading.main_thread().ident
    r, w = own.pipe()
    counted = 0
    for i in range(int(sys.argv[1])):
        size = 1 << 20 if i % 2 else 1000
        taken = None
        timer = threading.Timer(moments.uniform(0, 0.001), signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            try:
                taken = fdwait.feed(w, data[:size], stop=fdwait.Stop() if i % 3 else None)
            except KeyboardInterrupt as error:
                taken = getattr(error, "taken", None)
                raise
            while True:
                timer.join()
        except KeyboardInterrupt:
            pass
        timer.join()
        found = fdwait.drain(r, timeout=0).total
        assert taken == found or (taken is None and found in (0, size)), (i, taken, found)
        counted += taken is not None and 0 < taken < size
    assert counted > 0
    """,
        str(rounds(150, 3000)),
    )


# ---- readers that go ----


@pytest.mark.parametrize("kind", ["pipe", "fifo", "socketpair"])
@each_kind_of_stop
def test_a_reader_that_is_gone(kind: str, with_stop: bool, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    fd = place(fd)
    own.close(peer)
    for data in b"x", DATA:
        with lasts(0, 0.3), pytest.raises(BrokenPipeError) as broken:
            feed(fd, data, timeout=10, stop=Stop() if with_stop else None)
        assert taken_of(broken) == 0
    assert feed(fd, b"") == 0


@pytest.mark.parametrize("kind", ["pipe", "fifo", "socketpair", "slave"])
@each_kind_of_stop
def test_a_reader_that_goes_while_it_is_full(kind: str, with_stop: bool, own: Owner) -> None:
    fd, peer = connect(kind, own)
    fd = own.up(fd)
    with pytest.raises(TimeoutError) as late:
        feed(fd, DATA, timeout=0.05)
    feeding = Task(feed, fd, DATA, timeout=10, stop=Stop() if with_stop else None)
    let_it_sleep()
    with lasts(0, 0.3):
        own.close(peer)
        with pytest.raises(OSError) as broken:
            feeding.result()
    # A socket tells of bytes that were thrown away unread; a terminal has an error of its own.
    assert broken.value.errno in {"slave": {errno.EIO}, "socketpair": {errno.EPIPE, errno.ECONNRESET}}.get(
        kind, {errno.EPIPE}
    )
    assert taken_of(broken) <= (0 if kind != "slave" else 4096)
    assert taken_of(late) > 0


@pytest.mark.parametrize("kind", ["pipe", "socketpair"])
def test_a_reader_that_goes_in_the_middle(kind: str, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    fd = place(fd)

    def read_some() -> None:
        assert read_exactly(peer, 3 * MIB) == DATA[: 3 * MIB]
        own.close(peer)

    reader = Task(read_some)
    with pytest.raises((BrokenPipeError, ConnectionResetError)) as broken:
        feed(fd, DATA, timeout=30)
    reader.result()
    assert 3 * MIB <= taken_of(broken) < 4 * MIB


@pytest.mark.skipif(not LINUX, reason="elsewhere a full terminal may be told of the hang-up")
@each_kind_of_stop
def test_waiting_at_a_hung_up_terminal_costs_no_processor_time(with_stop: bool, own: Owner) -> None:
    """The slave can be opened again, so a master goes on waiting for room."""
    fd, peer = connect("master", own)
    with pytest.raises(TimeoutError):
        feed(fd, DATA, timeout=0.05)
    own.close(peer)
    with cpu_below(0.1), lasts(0.5, 0.3), pytest.raises(TimeoutError):
        Task(feed, fd, DATA, timeout=0.5, stop=Stop() if with_stop else None).result()


@pytest.mark.parametrize("command", [["true"], ["head", "-c", "1"]], ids=lambda command: command[0])
def test_b130_a_child_that_does_not_want_it(command: list[str], own: Owner, place: Place) -> None:
    stdin, w = own.pipe()
    w = place(w)
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE) as process:
        own.close(stdin)
        with pytest.raises(BrokenPipeError) as broken:
            feed(w, LARGE, timeout=30)
        assert process.stdout is not None
        assert process.stdout.read() == (b"" if command == ["true"] else b"\0")
    assert process.returncode == 0
    assert 0 <= taken_of(broken) < MIB


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), 9)"], ids=["exits", "is killed"])
def test_b132_a_child_that_takes_a_part(end: str, own: Owner) -> None:
    code = f"""
        import os, sys
        left = 100_000
        while left:
            left -= len(os.read(0, left))
        {end}
        """
    stdin, w = own.pipe()
    with subprocess.Popen(python(code), stdin=stdin) as process:
        own.close(stdin)
        with pytest.raises(BrokenPipeError) as broken:
            feed(w, LARGE[:MIB], timeout=30)
    assert process.returncode in (3, -9)
    assert 100_000 <= taken_of(broken) < MIB


SIGPIPES = """
    import os, signal, sys, threading
    import fdwait
    from support import Owner, Task
    from test_feed import connect

    called = []
    own = Owner()
    disposition = {"default": signal.SIG_DFL, "ignored": signal.SIG_IGN, "handler": lambda *_: called.append(1)}
    signal.signal(signal.SIGPIPE, disposition[sys.argv[1]])
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]) | {signal.SIGUSR2}

    def breaks(kind, late):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
        fd, peer = connect(kind, own)
        if late:
            reader = Task(lambda: (os.read(peer, 100), own.close(peer)))
        else:
            own.close(peer)
        try:
            fdwait.feed(fd, bytes(8 << 20), timeout=30)
            raise SystemExit("nothing broke")
        except (BrokenPipeError, ConnectionResetError) as error:
            assert (error.taken > 0) is late, error.taken
        if late:
            reader.result()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
        assert not signal.sigpending(), signal.sigpending()

    for kind in "pipe", "fifo", "socketpair":
        for late in False, True:
            breaks(kind, late)
            Task(breaks, kind, late).result()
    assert called == []
    assert signal.getsignal(signal.SIGPIPE) == disposition[sys.argv[1]]
    if sys.argv[1] == "handler":
        signal.raise_signal(signal.SIGPIPE)  # it is still in place
        assert called == [1]
    own.close_all()
    print("done")
    """


@pytest.mark.parametrize("disposition", ["default", "ignored", "handler"])
def test_b130_sigpipe_is_never_raised(disposition: str) -> None:
    assert run_program(SIGPIPES, disposition) == "done\n"


PENDING = """
    import os, signal, sys, threading
    import fdwait
    from support import Owner, Task

    def pending():
        return signal.SIGPIPE in signal.sigpending()

    def check():
        with Owner() as own:
            r, w = own.pipe()
            assert fdwait.feed(w, b"x") == 1
            assert pending() is sent
            own.close(r)
            try:
                fdwait.feed(w, b"x")
                raise SystemExit("nothing broke")
            except BrokenPipeError as error:
                assert error.taken == 0
            assert pending() is sent
            assert signal.SIGPIPE in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    sent = False
    check()
    if sys.argv[1] == "thread":
        signal.pthread_kill(threading.get_ident(), signal.SIGPIPE)
    else:
        os.kill(os.getpid(), signal.SIGPIPE)
    sent = True
    check()
    assert signal.sigwait([signal.SIGPIPE]) == signal.SIGPIPE
    assert not pending()
    print("done")
    """


@pytest.mark.parametrize("to", ["thread", "process"])
def test_a_sigpipe_that_was_pending_stays_so(to: str) -> None:
    """Sent by somebody else while it was blocked: it is still there, once."""
    assert run_program(PENDING, to) == "done\n"


# ---- descriptors that fail ----


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@each_kind_of_stop
def test_a_full_disk(with_stop: bool, own: Owner, place: Place) -> None:
    fd = place(own(os.open("/dev/full", os.O_WRONLY)))
    with pytest.raises(OSError) as full:
        feed(fd, DATA, stop=Stop() if with_stop else None)
    assert (full.value.errno, taken_of(full)) == (errno.ENOSPC, 0)
    assert str(fd) in str(full.value)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    code = """
        import errno, os, resource, signal, sys
        import fdwait
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        try:
            fdwait.feed(fd, b"x" * 4_000_000)
        except OSError as error:
            print(errno.errorcode[error.errno], error.taken, os.fstat(fd).st_size)
        """
    assert run_program(code, os.fspath(tmp_path / "file")) == "EFBIG 1500000 1500000\n"


@pytest.mark.parametrize("what", ["pipe", "file", "null", "directory"])
@each_kind_of_stop
def test_a_descriptor_that_is_for_reading_only(what: str, with_stop: bool, own: Owner, place: Place) -> None:
    if what == "pipe":
        fd = own.pipe()[0]
    else:
        fd = own(os.open({"file": __file__, "null": os.devnull, "directory": os.curdir}[what], os.O_RDONLY))
    with lasts(0, 0.3), pytest.raises(OSError) as caught:
        feed(place(fd), DATA, timeout=5, stop=Stop() if with_stop else None)
    assert (caught.value.errno, taken_of(caught)) == (errno.EBADF, 0)


@each_kind_of_stop
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=len)
def test_a_closed_descriptor(data: bytes, with_stop: bool, own: Owner, place: Place) -> None:
    _, w = own.pipe()
    w = place(w)
    own.close(w)
    with pytest.raises(OSError, match=str(w)) as caught:
        feed(w, data, stop=Stop() if with_stop else None)
    assert (caught.value.errno, taken_of(caught)) == (errno.EBADF, 0)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_what_keeps_packets_apart_is_no_stream(kind: int, own: Owner) -> None:
    try:
        a, b = socket.socketpair(socket.AF_UNIX, kind)
    except OSError as exc:
        pytest.skip(f"no such sockets here: {exc}")
    with a, b:
        b.setblocking(False)
        with pytest.raises(OSError, match="packets") as caught:
            feed(a, b"x")
        assert (caught.value.errno, taken_of(caught)) == (errno.EPROTOTYPE, 0)
        with pytest.raises(BlockingIOError):
            b.recv(10)


def other_file(what: str, own: Owner, tmp_path: Path) -> tuple[int, Callable[[], int]]:
    """One that has room, and how much was written to it."""
    if what == "file":
        fd = own(os.open(tmp_path / f"other{len(list(tmp_path.iterdir()))}", os.O_WRONLY | os.O_CREAT))
        return fd, lambda: os.fstat(fd).st_size
    fd, peer = connect(what, own)
    return fd, lambda: drain(peer, timeout=0.05).total


def test_b038_a_number_that_another_file_took_while_it_slept(own: Owner, tmp_path: Path) -> None:
    """Noticed within five seconds, and nothing is written to that file. All at once, since each takes its time."""
    cases = []
    for kind, other in [("pipe", "pipe"), ("pipe", "file"), ("socketpair", "pipe"), ("slave", "socketpair")]:
        for stop in None, Stop():
            fd, _ = connect(kind, own)
            fd = own.up(fd)
            other_fd, written = other_file(other, own, tmp_path)
            cases.append((Task(feed, fd, DATA, stop=stop), fd, other_fd, written))
    closed = own.up(own.pipe()[1])
    closing = Task(feed, closed, DATA)
    for fd in closed, *(fd for _, fd, _, _ in cases):
        until_full(fd)  # a number that changes between two writes of a turn is not noticed
    let_it_sleep()
    with lasts(0, 5.5):
        for _, fd, other_fd, _ in cases:
            os.dup2(other_fd, fd)
        own.close(closed)
        for task, _, _, written in cases:
            with pytest.raises(OSError, match="belongs to another file") as caught:
                task.result()
            assert caught.value.errno == errno.EBADF
            assert taken_of(caught) > 0
            assert written() == 0
        with pytest.raises(OSError) as caught:
            closing.result()
        assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("what", ["file", "pipe"])
@each_kind_of_stop
def test_the_main_thread_notices_sooner(what: str, with_stop: bool, own: Owner, tmp_path: Path) -> None:
    """It looks up now and then, for signals."""
    r, w = own.pipe()
    other, written = other_file(what, own, tmp_path)
    task = Task(os.dup2, other, w, delay=0.2)
    with lasts(0.19, 0.4), pytest.raises(OSError) as caught:
        feed(w, DATA, stop=Stop() if with_stop else None, timeout=20)
    task.result()
    taken = taken_of(caught)
    assert caught.value.errno == errno.EBADF
    assert written() == 0
    assert drain(r).data == DATA[:taken]


@pytest.mark.parametrize("kind", ["file", "pipe", "socketpair"])
@each_kind_of_stop
def test_a_number_that_another_file_took_between_two_blocks(
    kind: str, with_stop: bool, own: Owner, tmp_path: Path
) -> None:
    fd, written = other_file(kind, own, tmp_path)
    kept = own.dup(fd) if kind != "file" else own(os.open(tmp_path / "other0", os.O_RDONLY))
    other, written_to_other = other_file("file", own, tmp_path)
    with pytest.raises(OSError) as caught:
        feed(
            fd,
            bytes(100),
            block=10,
            progress=lambda _: os.dup2(other, fd),
            stop=Stop() if with_stop else None,
        )
    assert (caught.value.errno, taken_of(caught)) == (errno.EBADF, 10)
    assert written_to_other() == 0
    assert (os.fstat(kept).st_size if kind == "file" else written()) == 10


@pytest.mark.parametrize("kind", ["file", "pipe", "socketpair"])
@each_kind_of_stop
def test_a_number_that_is_closed_between_two_blocks(kind: str, with_stop: bool, own: Owner, tmp_path: Path) -> None:
    fd, _ = other_file(kind, own, tmp_path)
    fd = own.up(fd)
    with pytest.raises(OSError) as caught:
        feed(fd, bytes(100), block=10, progress=lambda _: own.close(fd), stop=Stop() if with_stop else None)
    assert (caught.value.errno, taken_of(caught)) == (errno.EBADF, 10)
