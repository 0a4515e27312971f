"""run() among other processes: forks, foreign reapers, closed or missing descriptors, many at once."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from children import a_group, assert_no_child, is_there
from support import LINUX, SLACK, STARVED, Owner, Task, descriptors, lasts, python, run_program, until_readable

from fdwait import Completed, End, Stop, Window, run

Rounds = Callable[[int, int], int]

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    yield
    assert_no_child()


# ---- CLOEXEC and FORK: each a program of its own ----

BESIDE = """
    import fcntl, os, random, signal, subprocess, sys, threading, time
    import fdwait
    from children import assert_no_child
    from support import SLACK, Task, descriptors, lasts

    seconds, threads = float(sys.argv[1]), int(sys.argv[2])

    class Timed(fdwait._starts.Child):
        '''Notes when it was started, which is after whatever run() waited for.'''
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            here.started = time.monotonic()

    here = threading.local()
    fdwait._run.Child = Timed
    over = threading.Event()
    starts = []

    def one_after_the_other(number):
        while not over.is_set():
            given = None if number % 2 else b"x" * 100_000
            before = time.monotonic()
            done = fdwait.run(["cat"] if given else ["true"], input=given, stdin=None if given else subprocess.DEVNULL)
            starts.append(here.started - before)
            assert (done.end, done.returncode, done.stdout) == (fdwait.End.EOF, 0, given or b""), done.end
            assert done.stdin_taken == (given and 100_000)

    def beside(other):
        '''Everybody at once, until the time is up; other() is called again and again, and gives pids to be killed.'''
        tasks = [Task(one_after_the_other, number) for number in range(threads)]
        pids = []
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pids.append(other())
                time.sleep(0.01)
        finally:
            over.set()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            for task in tasks:
                task.result()
        assert len(starts) > threads and len(pids) > 10
        assert max(starts) < 0.1 * SLACK, max(starts)
        assert_no_child()
        print("done")
    """


@pytest.fixture
def beside(rounds: Rounds) -> Callable[[str], None]:
    """beside(code): such a program, 32 threads for 20 s with --soak."""

    def beside(code: str) -> None:
        assert run_program(BESIDE + code, str(rounds(2, 20)), str(rounds(8, 32))) == "done\n"

    return beside


def test_b123_workers_that_live_on(beside: Callable[[str], None]) -> None:
    beside("""
    def worker():
        pid = os.fork()
        if pid == 0:
            time.sleep(5)
            os._exit(0)
        return pid
    beside(worker)
    """)


def test_b121_long_commands_of_others(beside: Callable[[str], None]) -> None:
    beside("""
    import itertools
    kinds = itertools.cycle("abc")
    def sleeper():
        kind = next(kinds)
        if kind == "a":
            return os.posix_spawnp("sleep", ["sleep", "5"], os.environ)
        if kind == "b":
            with open(os.devnull) as null:
                process = subprocess.Popen(["sleep", "5"], stdin=null, close_fds=False)
            process.returncode = 0  # it is reaped by its number
            return process.pid
        pid = os.fork()
        if pid == 0:
            os.execvp("sleep", ["sleep", "5"])
        return pid
    beside(sleeper)
    """)


ALONE = """
    import os, signal, subprocess, sys, threading, time
    {first}
    import fdwait
    from children import assert_no_child
    from support import SLACK, Task, descriptors, lasts, let_it_sleep

    workers = []
    hold_r, hold_w = os.pipe()

    def fork_a_worker(*_):
        '''It lives until this process is gone, or lets it.'''
        pid = os.fork()
        if pid == 0:
            os.close(hold_w)
            os.read(hold_r, 1)
            os._exit(0)
        workers.append(pid)

    fdwait.run(["true"])
    """
REAPS = """
    os.close(hold_w)
    for pid in workers:
        assert os.waitpid(pid, 0)[1] == 0
    assert_no_child()
    print("done")
    """


def alone(code: str, first: str = "") -> None:
    assert run_program(ALONE.format(first=first) + code + REAPS) == "done\n"


@pytest.mark.parametrize("given", [None, b"x" * 1_000_000], ids=["no input", "input"])
def test_a_fork_in_a_signal_handler(given: bytes | None) -> None:
    """It does not inherit the pipes: neither the command nor we wait for its end."""
    alone(f"""
    given = {"None" if given is None else f'b"x" * {len(given)}'}
    signal.signal(signal.SIGALRM, fork_a_worker)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with lasts(0.3, 1):
        done = fdwait.run(["sh", "-c", "sleep 0.3; cat"], input=given, stdin=None if given else subprocess.DEVNULL)
    assert (done.stdout, done.end, done.returncode) == (given or b"", fdwait.End.EOF, 0), done.end
    assert len(workers) == 1
    """)


@pytest.mark.parametrize("given", [None, b"x" * 1_000_000], ids=["no input", "input"])
def test_a_fork_in_another_thread(given: bytes | None) -> None:
    alone(f"""
    given = {"None" if given is None else f'b"x" * {len(given)}'}
    task = Task(
        fdwait.run, ["sh", "-c", "sleep 0.3; cat"], input=given, stdin=None if given else subprocess.DEVNULL
    )
    let_it_sleep()
    fork_a_worker()
    done = task.result()
    assert (done.stdout, done.end, done.returncode) == (given or b"", fdwait.End.EOF, 0), done.end
    """)


def test_a_worker_runs_commands_of_its_own() -> None:
    """Forked while one runs in another thread, which is not there any more in the worker."""
    alone("""
    tasks = [Task(fdwait.run, ["sleep", "0.5"]) for _ in range(4)]
    let_it_sleep()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with lasts(0, 0.5):  # it waits for nobody who is not there
                assert fdwait.run(["cat"], input=b"in").stdout == b"in"
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert [task.result().end for task in tasks] == [fdwait.End.EOF] * 4
    """)


def test_a_fork_between_start_and_exec() -> None:
    """What preexec_fn forks is the command's own, and holds its pipes."""
    alone("""
    def fork():
        if os.fork() == 0:
            time.sleep(0.3)
            os.write(1, b"forked")
            os._exit(0)
    with lasts(0.3, 1):
        done = fdwait.run(["printf", "out "], preexec_fn=fork, linger=20, linger_cap=20)
    assert (done.stdout, done.end, done.returncode) == (b"out forked", fdwait.End.EOF, 0), done
    with lasts(0, 0.5):  # and the next start waits for nobody
        assert fdwait.run(["printf", "next"]).stdout == b"next"
    """)


def test_a_preexec_fn_that_runs_a_command() -> None:
    alone("""
    def preexec():
        assert fdwait.run(["cat"], input=b"in").stdout == b"in"
    assert fdwait.run(["printf", "out"], preexec_fn=preexec).stdout == b"out"
    """)


def test_a_preexec_fn_that_fails() -> None:
    alone("""
    def preexec():
        raise ValueError
    before = descriptors()
    for _ in range(3):
        try:
            fdwait.run(["true"], input=b"in", preexec_fn=preexec)
            raise SystemExit("no error")
        except subprocess.SubprocessError:
            pass
    assert descriptors() == before
    fork_a_worker()
    assert fdwait.run(["true"]).end is fdwait.End.EOF
    """)


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_fork_hook_whose_lock_is_held_by_a_start(order: str) -> None:
    """Each would wait for the other; one of them gives up after two seconds (PATIENCE in starts.c)."""
    hook = """
    lock = threading.Lock()
    forking = threading.Event()
    os.register_at_fork(before=lambda: (forking.set(), lock.acquire()), after_in_parent=lock.release)
    """
    alone(
        f"""
    {hook.strip() if order == "after" else ""}
    def with_lock():
        with lock:
            assert forking.wait(10)
            return fdwait.run(["printf", "out"])
    task = Task(with_lock)
    let_it_sleep()
    with lasts(0, 4):
        fork_a_worker()
    done = task.result()
    assert (done.stdout, done.returncode) == (b"out", 0), done
    """,
        first=hook.strip() if order == "before" else "",
    )


# ---- REAP ----


def started(own: Owner, **options: Any) -> tuple[Task, int]:
    """A run() that waits for a background child after its command was reaped; and the number of the former."""
    r, w = own.pipe()
    command = ["sh", "-c", f"sleep 30 & echo $$ $! >/dev/fd/{w}; exec sleep 30"]
    task = Task(run, command, pass_fds=[w], start_new_session=True, **options)
    leader, background = map(int, os.read(until_readable(r), 100).split())
    os.kill(leader, signal.SIGTERM)
    assert os.waitpid(leader, 0) == (leader, signal.SIGTERM)
    return task, background


@pytest.mark.parametrize("check", [False, True])
def test_b164_a_status_that_somebody_else_took(check: bool, own: Owner) -> None:
    task, background = started(own, check=check, linger=0.5)
    if check:
        with pytest.raises(OSError) as caught:
            task.result()
        assert caught.value.errno == errno.ECHILD
        done: Completed = caught.value.completed  # type: ignore[attr-defined]
    else:
        done = task.result()
    assert (done.returncode, done.stdout, done.end) == (None, b"", End.EXITED)
    os.kill(background, signal.SIGKILL)


@pytest.mark.parametrize("how", ["timeout", "stop"])
def test_b164_no_signal_to_a_number_that_was_given_back(how: str, own: Owner) -> None:
    """The leader of the group was reaped; a background child, still in the group of that number, shows the signal."""
    stop = Stop()
    options: dict[str, Any] = {"timeout": 1} if how == "timeout" else {"stop": stop}
    task, background = started(own, linger=20, linger_cap=20, **options)
    if how == "timeout":
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            task.result()
        done = caught.value.completed  # type: ignore[attr-defined]
    else:
        stop.set()
        done = task.result()
    assert done.returncode is None
    assert is_alive(background)
    os.kill(background, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """A killed process is gone or a zombie, at the latest after a moment."""
    time.sleep(0.1)
    if not LINUX:
        return is_there(pid)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_sigchld_is_ignored_by_the_program() -> None:
    code = """
        import errno, signal, subprocess, fdwait
        from support import lasts
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        done = fdwait.run(["sh", "-c", "cat; exit 3"], input=b"in")
        assert (done.stdout, done.returncode, done.end) == (b"in", None, fdwait.End.EOF), done
        try:
            fdwait.run(["sh", "-c", "exit 3"], check=True)
            raise SystemExit("no error")
        except OSError as error:
            assert error.errno == errno.ECHILD
            assert error.completed.returncode is None
        with lasts(0.3, 0.5):
            try:
                fdwait.run(["sleep", "30"], timeout=0.3)
                raise SystemExit("no time-out")
            except subprocess.TimeoutExpired as error:
                assert error.completed.returncode is None
                assert not getattr(error, "__notes__", None), error.__notes__  # it was killed
        print("done")
        """
    assert run_program(code) == "done\n"


# ---- SIGENV, LOWFD ----


@pytest.mark.skipif(not LINUX, reason="needs /proc/self/status")
def test_b179_no_signal_is_ignored_in_the_command() -> None:
    """But for those that were ignored before Python came; it ignores two for itself."""

    def signals(status: bytes) -> dict[bytes, int]:
        lines = dict(line.split(b":\t") for line in status.splitlines() if line.startswith(b"Sig"))
        return {name: int(value, 16) for name, value in lines.items() if name in (b"SigIgn", b"SigBlk")}

    ours = signals(Path("/proc/self/status").read_bytes())
    for number in signal.SIGPIPE, signal.SIGXFSZ:
        assert ours[b"SigIgn"] & 1 << (number - 1)
        ours[b"SigIgn"] &= ~(1 << (number - 1))
    assert signals(run(["cat", "/proc/self/status"]).stdout) == ours


def test_b179_a_pipeline_ends() -> None:
    with lasts(0, 1):
        done = run(["sh", "-c", "yes | head -1"])
    assert (done.stdout, done.stderr, done.returncode, done.end) == (b"y\n", b"", 0, End.EOF)


def test_input_does_not_change_the_commands_signal_mask() -> None:
    """While it is fed SIGPIPE is held in this thread."""
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    for given in None, bytes(1 << 20):
        assert run(python(code), input=given, stdin=None if given else subprocess.DEVNULL).stdout == b"set()\n"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.parametrize("closed", [[0], [1], [0, 1], [0, 1, 2]], ids=str)
def test_b181_without_standard_streams_of_our_own(closed: list[int]) -> None:
    code = f"""
        import fcntl, os, subprocess
        import fdwait
        report = fcntl.fcntl(1, fcntl.F_DUPFD, 10)
        for fd in {closed}:
            os.close(fd)
        data = bytes(range(256)) * 4096
        done = fdwait.run(["sh", "-c", "cat; echo error >&2"], input=data)
        right = (done.stdout, done.stderr, done.stdin_taken) == (data, b"error\\n", len(data))
        one = fdwait.run(["sh", "-c", "cat; echo error >&2"], input=data, stderr=subprocess.STDOUT)
        right = right and one.stdout == data + b"error\\n"
        for fd in {closed}:
            try:
                os.fstat(fd)
                right = False
            except OSError:
                pass
        os.write(report, b"right" if right else b"wrong: " + repr(done)[-200:].encode())
        os._exit(0)
        """
    assert run_program(code) == "right"


# ---- no descriptor free, no such command ----


def with_free_descriptors(count: int, call: Callable[[], Any]) -> Any:
    """call() while only so many descriptors can be opened; what came of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Owner() as own:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(descriptors()) + 20, hard))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(own(os.open(os.devnull, os.O_RDONLY)))
        try:
            for fd in taken[:count]:
                own.close(fd)
            return call()
        except OSError as error:
            return error
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("given", [None, b"in"], ids=["no input", "input"])
@pytest.mark.parametrize("stop", [None, Stop()], ids=["no stop", "stop"])
def test_few_free_descriptors(given: bytes | None, stop: Stop | None) -> None:
    """It does everything, or nothing but say EMFILE."""
    stdin = {"input": given} if given else {"stdin": subprocess.DEVNULL}
    before = descriptors()
    outcomes = []
    for count in range(13):
        done = with_free_descriptors(count, lambda: run(["sh", "-c", "cat; exit 3"], stop=stop, **stdin))
        if isinstance(done, OSError):
            assert done.errno == errno.EMFILE
            assert not hasattr(done, "completed")
            outcomes.append(False)
        else:
            assert (done.stdout, done.stderr, done.returncode, done.end) == (given or b"", b"", 3, End.EOF)
            outcomes.append(True)
        assert descriptors() == before
        assert_no_child()
    assert outcomes == sorted(outcomes)  # with more it does not do less
    assert (outcomes[0], outcomes[-1]) == (False, True)


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "no program").write_text("")
    cases: list[tuple[type[Exception], Any, dict[str, Any]]] = [
        (FileNotFoundError, ["/no/such/command"], {}),
        (PermissionError, [tmp_path / "no program"], {}),
        (PermissionError, [tmp_path], {}),
        (NotADirectoryError, ["true"], {"cwd": tmp_path / "no program"}),
        (FileNotFoundError, ["true"], {"cwd": tmp_path / "missing"}),
        (ValueError, ["echo", "a\0b"], {}),
        (ValueError, ["true"], {"env": {"A=B": "C"}}),
        (TypeError, [5], {}),
        (TypeError, None, {}),
        (TypeError, ["true"], {"cwd": 1.5}),
    ]
    before = descriptors()
    for error, args, options in cases:
        for given in {}, {"input": b"in"}, {"stop": Stop()}, {"stdout": None, "stderr": None}:
            with pytest.raises(error) as caught:
                run(args, **options, **given)
            assert not hasattr(caught.value, "completed")
            assert descriptors() == before
            assert_no_child()


# ---- threads ----


def test_the_interpreter_is_left_to_others() -> None:
    """While it waits, feeds and drains a thread that wants to run every 5 ms can."""
    busy = Task(run, ["sh", "-c", "cat >/dev/null; exec yes"], input=bytes(256 << 20), timeout=1, keep=Window(9, 9))
    late = []
    while busy.is_alive():
        start = time.perf_counter()
        time.sleep(0.005)
        late.append(time.perf_counter() - start - 0.005)
    assert len(late) > 50
    assert sorted(late)[len(late) * 99 // 100] < 0.05 * SLACK
    with pytest.raises(subprocess.TimeoutExpired):
        busy.result()


def test_twenty_with_background_children_in_parallel() -> None:
    command = ["sh", "-c", "echo out; sleep 30 & exit 3"]
    with a_group() as group:
        with lasts(0.3, 0.7):
            results = [task.result() for task in [Task(run, command, process_group=group) for _ in range(20)]]
        assert {(done.stdout, done.stderr, done.returncode, done.end) for done in results} == {
            (b"out\n", b"", 3, End.EXITED)
        }


@pytest.mark.usefixtures("held")
def test_above_1023_four_at_a_time(rounds: Rounds) -> None:
    before = descriptors()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, [["printf", "test"]] * rounds(200, 5000)))
    assert {(done.stdout, done.stderr, done.returncode, done.end) for done in results} == {(b"test", b"", 0, End.EOF)}
    assert descriptors() == before


# ---- what others do to our descriptors ----


def pidfds() -> list[int]:
    return [fd for fd, what in descriptors().items() if "pidfd" in what]


@pytest.mark.skipif(not LINUX, reason="there are no pidfds")
@pytest.mark.parametrize("stop", [None, Stop()], ids=["no stop", "stop"])
def test_somebody_closes_the_watch_of_the_exit(stop: Stop | None) -> None:
    """Then it is looked for: the status is right, and a time-out is kept."""

    def close() -> None:
        while not pidfds():
            time.sleep(0.01)
        for fd in pidfds():
            os.close(fd)

    closing = Task(close)
    with lasts(1, 6):
        assert run(["sh", "-c", "sleep 1; exit 3"], timeout=30, stop=stop).returncode == 3
    closing.result()
    closing = Task(close)
    with lasts(0.6, 0.5), pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "30"], timeout=0.6, stop=stop)
    closing.result()


@pytest.mark.skipif(not LINUX, reason="there are no pidfds")
def test_a_worker_keeps_nothing_of_a_run_that_is_under_way() -> None:
    run_program("""
        import os, sys
        import fdwait
        from support import Task, descriptors
        fdwait.run(["true"], stop=fdwait.Stop())
        before = descriptors()
        r, w = os.pipe()
        running = Task(fdwait.run, ["sh", "-c", "cat; sleep 0.5"], input=bytes(1 << 20), stop=fdwait.Stop())
        while not any("pidfd" in what for what in descriptors().values()):
            pass
        pid = os.fork()
        if pid == 0:
            os._exit(not {fd for fd in descriptors() if fd not in (r, w)} <= set(before))
        assert os.waitpid(pid, 0)[1] == 0
        assert running.result().end is fdwait.End.EOF
        """)


def test_a_failed_start_without_zombies() -> None:
    """With SIGCHLD ignored nobody can say what became of it; nothing ran, all the same."""
    run_program("""
        import signal
        import fdwait
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            fdwait.run(["/no/such/command"])
        except FileNotFoundError as error:
            assert not hasattr(error, "completed")
        """)
