"""feed(): every byte arrives, into every kind of descriptor, and no write sleeps. STDIN-BYTES, STDIN-DEADLOCK."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import (
    LINUX,
    SLACK,
    Owner,
    Task,
    cpu_below,
    lasts,
    no_free_descriptor,
    program,
    python,
    run_program,
    stretch,
)
from test_feed import KINDS, LARGE, MIB, arrives, check_taken, connect, each_flag, each_kind, read_exactly

from fdwait import End, Stop, drain, feed

Place = Callable[[int], int]

EVERY_BYTE = bytes(range(256))
each_kind_of_stop = pytest.mark.parametrize("stop", [None, Stop()], ids=["no stop", "stop"])


# ---- every byte, to every kind ----


@each_kind
@each_flag
@pytest.mark.parametrize("data", [b"", b"\0", b"\n", EVERY_BYTE * 400, bytes(MIB), b"\n" * 30_000], ids=len)
def test_b137_exact_bytes(data: bytes, kind: str, flag: bool, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd, peer = place(fd), place(peer)
    reader = Task(read_exactly, peer, len(arrives(kind, data)))
    assert feed(fd, data, timeout=30) == len(data)
    assert reader.result() == arrives(kind, data)
    check_taken(kind, fd, peer, b"")


@each_kind
@each_flag
def test_a_reader_that_takes_odd_pieces(kind: str, flag: bool, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    os.set_blocking(fd, not flag)
    fd = place(fd)
    data = stretch(0, 8 * MIB + 1 if kind in ("pipe", "fifo", "socketpair") else 400_001)
    reader = Task(read_exactly, peer, len(arrives(kind, data)), piece=10_007)
    assert feed(fd, data, timeout=30) == len(data)
    assert reader.result() == arrives(kind, data)
    check_taken(kind, fd, peer, b"")


@pytest.mark.parametrize("kind", ["pipe", "socketpair", "slave"])
def test_a_reader_that_takes_its_time(kind: str, own: Owner) -> None:
    fd, peer = connect(kind, own)
    data = stretch(0, 500_000 if kind != "slave" else 20_000)

    def read_slowly() -> bytes:
        size, received = len(arrives(kind, data)), b""
        while len(received) < size:
            received += Task(read_exactly, peer, min(size - len(received), size // 20), delay=0.01).result()
        return received

    reader = Task(read_slowly)
    with lasts(0.1, 3):
        assert feed(fd, data, block=30_011, progress=lambda _: None) == len(data)
    assert reader.result() == arrives(kind, data)
    check_taken(kind, fd, peer, b"")


@each_kind_of_stop
@pytest.mark.parametrize("block", [1, 1000, MIB, 9 * MIB])
def test_blocks_make_no_difference(block: int, stop: Stop | None, own: Owner, place: Place) -> None:
    r, w = own.pipe()
    w = place(w)
    data = stretch(0, 8 * MIB if block > 1 else 10_000)
    reader = Task(read_exactly, r, len(data))
    assert feed(w, data, block=block, progress=lambda _: None, stop=stop) == len(data)
    assert reader.result() == data
    check_taken("pipe", w, r, b"")


def test_a_tcp_connection(own: Owner, place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = own(socket.create_connection(server.getsockname()).detach()), own(server.accept()[0].detach())
    near = place(near)
    data = stretch(0, 8 * MIB)
    reader = Task(read_exactly, far, len(data))
    assert feed(near, data) == len(data)
    assert reader.result() == data


@each_kind_of_stop
@pytest.mark.parametrize("data", [b"", b"\0", EVERY_BYTE * 1000, stretch(0, 8 * MIB + 1)], ids=len)
def test_a_regular_file(data: bytes, stop: Stop | None, tmp_path: Path, own: Owner, place: Place) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    fd = place(own(os.open(path, os.O_WRONLY)))
    os.lseek(fd, 3, os.SEEK_SET)
    assert feed(fd, data, stop=stop) == len(data)  # from where its offset is
    assert os.lseek(fd, 0, os.SEEK_CUR) == 3 + len(data)
    assert path.read_bytes() == b"012" + data + b"0123456789"[3 + len(data) :]


def test_a_file_that_is_appended_to(tmp_path: Path, own: Owner) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert feed(own(os.open(path, os.O_WRONLY | os.O_APPEND)), b"def") == 3
    assert path.read_bytes() == b"abcdef"


@each_kind_of_stop
def test_the_null_device(stop: Stop | None, own: Owner, place: Place) -> None:
    assert feed(place(own(os.open(os.devnull, os.O_WRONLY))), LARGE, stop=stop) == len(LARGE)


@pytest.mark.skipif(not LINUX, reason="F_SETPIPE_SZ is Linux's")
@pytest.mark.parametrize("size", [4096, MIB])
def test_pipes_of_other_sizes(size: int, own: Owner) -> None:
    r, w = own.pipe()
    size = fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, size)
    data = stretch(0, 3 * MIB)
    with pytest.raises(TimeoutError) as late:
        feed(w, data, timeout=0)
    assert late.value.taken == size  # type: ignore[attr-defined]
    assert read_exactly(r, size) == data[:size]
    reader = Task(read_exactly, r, len(data) - size)
    assert feed(w, data[size:]) == len(data) - size
    assert reader.result() == data[size:]
    assert fcntl.fcntl(w, fcntl.F_GETPIPE_SZ) == size


# ---- into a child ----

HASHES = """
    import hashlib, os
    seen = hashlib.sha256()
    while data := os.read(0, 1 << 20):
        seen.update(data)
    os.write(1, seen.digest())
    """


@contextlib.contextmanager
def child(command: list[str], own: Owner, place: Place = lambda fd: fd):  # type: ignore[no-untyped-def]
    """The process, the descriptor to feed, the one to drain."""
    (stdin, w), (r, stdout) = own.pipe(), own.pipe()
    w, r = place(w), place(r)
    with subprocess.Popen(command, stdin=stdin, stdout=stdout) as process:
        try:
            own.close(stdin)
            own.close(stdout)
            yield process, w, r
        finally:
            process.kill()


@pytest.mark.parametrize("size", [0, 131_071, 131_072, 131_073, MIB, 64 * MIB])
def test_b134_any_size(size: int, own: Owner, place: Place) -> None:
    with child(["wc", "-c"], own, place) as (process, w, r):
        assert feed(w, bytes(size)) == size
        own.close(w)
        assert int(drain(r, process=process).data) == size


@pytest.mark.parametrize("data", [EVERY_BYTE * 4096, bytes(MIB), stretch(0, 20_000_003)], ids=len)
def test_b137_a_child_that_hashes_it(data: bytes, own: Owner, place: Place) -> None:
    with child(python(HASHES), own, place) as (process, w, r):
        assert feed(w, data) == len(data)
        own.close(w)
        assert drain(r, process=process).data == hashlib.sha256(data).digest()


def test_b139_nothing_in_it_means_anything(own: Owner) -> None:
    data = "\n".join(["EOF", "'EOF'", "$(touch x)", "`touch x`", "\\", "'", '"', "\x04", "\0", "⟪", "EOF"])
    for given in data, data + "\n":
        with child(["cat"], own) as (process, w, r):
            assert feed(w, given) == len(given.encode())
            own.close(w)
            assert drain(r, process=process).data == given.encode()


def test_b125_a_child_that_talks_first(own: Owner) -> None:
    """With a thread for each direction neither waits for the other."""
    code = """
        import os
        left = 1 << 20
        while left:
            left -= os.write(1, b"o" * left)
        count = 0
        while data := os.read(0, 1 << 20):
            count += len(data)
        os.write(1, b"%d" % count)
        """
    with child(python(code), own) as (process, w, r):
        draining = Task(drain, r, process=process)
        assert feed(w, LARGE) == len(LARGE)
        own.close(w)
        result = draining.result()
    assert result.end is End.EOF
    assert result.data == b"o" * MIB + b"8388608"


def test_b127_a_child_that_never_reads(own: Owner) -> None:
    with child(["sleep", "30"], own) as (_, w, _), lasts(0.5, 0.3), pytest.raises(TimeoutError) as late:
        feed(w, bytes(4 * MIB), timeout=0.5)
    assert 4096 <= late.value.taken < 4 * MIB  # type: ignore[attr-defined]


STOPS_READING = """
    import os, signal
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    count = 0
    while count < 3 << 20:
        count += len(os.read(0, (3 << 20) - count))
    os.write(1, b"3")
    signal.sigwait([signal.SIGUSR1])
    while data := os.read(0, 1 << 20):
        count += len(data)
    os.write(1, b" %d" % count)
    """


@pytest.mark.parametrize("ended_by", ["timeout", "stop"])
def test_b129_a_child_that_stops_reading(ended_by: str, own: Owner) -> None:
    """What was delivered is counted, and the child finds the end of its input right behind it."""
    stop = Stop()
    with child(python(STOPS_READING), own, own.up) as (process, w, r):
        if ended_by == "timeout":
            with lasts(0.75 * SLACK, 0.3), pytest.raises(TimeoutError) as late:
                feed(w, LARGE, timeout=0.75 * SLACK, block=MIB, progress=lambda _: None)
            taken = late.value.taken  # type: ignore[attr-defined]
        else:
            feeding = Task(feed, w, LARGE, stop=stop)
            assert read_exactly(r, 1) == b"3"
            with lasts(0, 0.3):
                stop.set()
                taken = feeding.result()
        assert 3 * MIB <= taken < 8 * MIB
        own.close(w)
        process.send_signal(signal.SIGUSR1)
        result = drain(r, process=process)
    assert result.data == (b"3 %d" if ended_by == "timeout" else b" %d") % taken


# ---- nothing sleeps in a write, and nothing spins ----


def traces() -> str | None:
    """Why not, if system calls cannot be traced here."""
    if not LINUX:
        return "strace is Linux's"
    if not shutil.which("strace"):
        return "strace is not installed"
    done = subprocess.run(
        ["strace", "-o", os.devnull, "-e", "trace=pwritev2", "true"], check=False, capture_output=True
    )
    return None if done.returncode == 0 else f"strace does not work: {done.stderr.decode(errors='replace').strip()}"


NO_TRACES = traces()
CALLS = "write,writev,pwritev2,sendto,sendmsg,fcntl,ioctl"


def calls_on(fd: int, trace: str) -> list[tuple[str, float]]:
    """Each call on the descriptor, as it was traced, and its seconds."""
    calls, begun = [], {}
    for line in trace.splitlines():
        thread, text = line.split(maxsplit=1)
        if match := re.fullmatch(r"(.*) <unfinished \.\.\.>", text):
            begun[thread] = match[1]
            continue
        if match := re.fullmatch(r"<\.\.\. \w+ resumed>(.*)", text):
            text = begun.pop(thread) + match[1]
        if match := re.fullmatch(rf"(\w+\({fd}\b.*) <(\d+\.\d+)>", text):
            calls.append((match[1], float(match[2])))
    calls += [(text, float("inf")) for text in begun.values() if re.match(rf"\w+\({fd}\b", text)]
    return calls


def traced(code: str, log: Path) -> list[list[tuple[str, float]]]:
    """The calls that a program makes on each descriptor whose number it prints."""
    command = ["strace", "-f", "-T", "-s", "1", "-e", "signal=none", "-e", f"trace={CALLS}", "-o", os.fspath(log)]
    done = subprocess.run(command + program(code), check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return [calls_on(int(number), log.read_text()) for number in done.stdout.split()]


def writes(calls: list[tuple[str, float]]) -> list[float]:
    return [seconds for text, seconds in calls if not text.startswith(("fcntl", "ioctl"))]


FEEDS_NOBODY = """
    from support import Owner, Task
    from test_feed import KINDS, connect
    import fdwait
    with Owner() as own:
        fds = {kind: connect(kind, own)[0] for kind in KINDS}
        tasks = [Task(fdwait.feed, fd, b"some line\\n" * 104_858, timeout=0.5) for fd in fds.values()]
        for task in tasks:
            try:
                task.result()
                raise SystemExit("it was all taken")
            except TimeoutError as late:
                assert late.taken > 0
        print(*fds.values())
    """
WRITES_TO_A_LATE_READER = """
    import os
    from support import Owner, Task
    from test_feed import read_exactly
    with Owner() as own:
        r, w = own.pipe()
        reader = Task(read_exactly, r, 1 << 20, delay=0.4)
        os.set_blocking(w, True)
        assert os.write(w, bytes(1 << 20)) == 1 << 20
        reader.result()
        print(w)
    """


@pytest.mark.skipif(NO_TRACES is not None, reason=str(NO_TRACES))
def test_no_write_sleeps_and_no_flag_is_set(tmp_path: Path) -> None:
    """Blocking descriptors of every kind, whose peers never read."""
    for kind, calls in zip(KINDS, traced(FEEDS_NOBODY, tmp_path / "log"), strict=True):
        assert writes(calls), kind
        assert max(writes(calls)) < 0.1 * SLACK, kind
        assert not [text for text, _ in calls if "F_SETFL" in text or "FIONBIO" in text], kind


@pytest.mark.skipif(NO_TRACES is not None, reason=str(NO_TRACES))
def test_a_write_that_sleeps_would_be_seen(tmp_path: Path) -> None:
    """The control of the test above."""
    [calls] = traced(WRITES_TO_A_LATE_READER, tmp_path / "log")
    assert max(writes(calls)) >= 0.2
    assert [text for text, _ in calls if "F_SETFL" in text or "FIONBIO" in text]


def test_waiting_for_a_reader_costs_no_processor_time(own: Owner) -> None:
    with cpu_below(0.05), lasts(0.8, 0.3):
        tasks = [Task(feed, connect(kind, own)[0], LARGE, timeout=0.8) for kind in KINDS]
        tasks += [Task(feed, connect(kind, own)[0], LARGE, timeout=0.8, stop=Stop()) for kind in KINDS]
        for task in tasks:
            with pytest.raises(TimeoutError):
                task.result()


# ---- at the limits ----


@each_kind_of_stop
@each_kind
def test_b032_no_free_descriptor(kind: str, stop: Stop | None, own: Owner, place: Place) -> None:
    fd, peer = connect(kind, own)
    fd = place(fd)
    data = stretch(0, 2 * MIB if kind in ("pipe", "fifo", "socketpair") else 100_000)
    with no_free_descriptor():
        reader = Task(read_exactly, peer, len(arrives(kind, data)))
        assert feed(fd, data, stop=stop) == len(data)
        assert reader.result() == arrives(kind, data)
        with pytest.raises(TimeoutError):
            feed(fd, LARGE, timeout=0.01, stop=stop)


def test_a_limit_below_what_is_open() -> None:
    """The number that is fed is beyond RLIMIT_NOFILE by then."""
    code = """
        import os, resource, fdwait
        from support import Owner, Task
        from test_feed import read_exactly
        with Owner() as own:
            r, w = own.pipe()
            w = own.up(w)
            resource.setrlimit(resource.RLIMIT_NOFILE, (r + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            reader = Task(read_exactly, r, 1 << 20)
            assert fdwait.feed(w, bytes(1 << 20)) == 1 << 20
            assert reader.result() == bytes(1 << 20)
        print("done")
        """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 1500
    assert run_program(code) == "done\n"


def test_many_at_once(own: Owner, place: Place) -> None:
    """Each thread has its own descriptor, kinds and sizes mixed."""
    tasks = []
    for i in range(25):
        kind = KINDS[i % len(KINDS)]
        fd, peer = connect(kind, own)
        data = stretch(i * 1009, 2 * MIB + i if kind in ("pipe", "fifo", "socketpair") else 50_000 + i)
        reading = Task(read_exactly, peer, len(arrives(kind, data)))
        tasks.append((Task(feed, place(fd), data, timeout=40), reading, kind, data))
    for feeding, reading, kind, data in tasks:
        assert feeding.result() == len(data)
        assert reading.result() == arrives(kind, data)
