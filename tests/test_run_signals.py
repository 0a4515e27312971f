"""run() and signals: Ctrl-C ends it at once, with what there was; nothing is left behind. B052, B054."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import STARVED, run_program

Rounds = Callable[[int, int], int]

pytestmark = pytest.mark.skipif(STARVED, reason="run() needs a descriptor for each stream")

INTERRUPTED = """
    import os, signal, subprocess, sys, threading, time
    import fdwait
    from children import assert_no_child
    from support import SLACK, descriptors

    def interrupted(*args, seconds=0.5, send=lambda: os.kill(os.getpid(), signal.SIGINT), **options):
        sent = []
        timer = threading.Timer(seconds, lambda: (sent.append(time.monotonic()), send()))
        timer.start()
        try:
            fdwait.run(*args, **options)
        except KeyboardInterrupt as error:
            late = time.monotonic() - sent[0]
            timer.join()
            assert late < 0.4 * SLACK, late  # a tenth of a second is the command's
            assert_no_child()
            return error.completed
        raise AssertionError("it was not interrupted")

    fdwait.run(["true"], stop=fdwait.Stop())  # a stop has one descriptor for the whole process
    before = descriptors()
    """
CHECKED = """
    assert descriptors() == before
    assert fdwait.run(["printf", "again"]).stdout == b"again"
    print("done")
    """


def interrupting(code: str, *args: str) -> None:
    """In a session of its own: it may send signals to its whole group."""
    assert run_program(INTERRUPTED + code + CHECKED, *args, start_new_session=True) == "done\n"


@pytest.mark.parametrize(
    "options", ["", "input=bytes(8 << 20)", "stop=fdwait.Stop(), timeout=20"], ids=["plain", "input", "stop"]
)
def test_b054_ctrl_c_at_a_silent_command(options: str) -> None:
    interrupting(f"""
    done = interrupted(["sh", "-c", "printf out; trap '' INT; while :; do sleep 0.05; done"], {options})
    assert (done.stdout, done.returncode, done.end) == (b"out", -signal.SIGKILL, fdwait.End.STOPPED), done
    assert done.stdin_taken == (0 if "input" in {options!r} else None)
    """)


def test_b054_ctrl_c_at_a_flood() -> None:
    interrupting("""
    done = interrupted(["yes"], text=True, keep=fdwait.Window(1000, 1000))
    assert (done.returncode, done.end) == (-signal.SIGKILL, fdwait.End.STOPPED)
    assert done.stdout.startswith(b"y\\n" * 400)  # bytes, also in text mode
    assert done.stdout_elided > 1_000_000
    """)


def test_b054_a_command_that_gets_ctrl_c_too_may_end_by_itself() -> None:
    """Within a tenth of a second, which a loaded machine may not give it each time."""
    interrupting("""
    command = "trap 'sleep 0.03; echo bye; exit 3' INT; echo out; while :; do sleep 0.01; done"
    for _ in range(5):
        done = interrupted(["sh", "-c", command], send=lambda: os.killpg(0, signal.SIGINT))
        assert done.end is fdwait.End.STOPPED
        if (done.stdout, done.returncode) == (b"out\\nbye\\n", 3):
            break
    else:
        raise SystemExit(f"it was not given the time: {done}")
    """)


def test_b054_ctrl_c_leaves_other_threads_alone() -> None:
    interrupting("""
    others = []
    thread = threading.Thread(target=lambda: others.append(fdwait.run(["sh", "-c", "sleep 1; echo other"])))
    thread.start()
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        fdwait.run(["sleep", "30"])
        raise SystemExit("it was not interrupted")
    except KeyboardInterrupt as error:
        assert error.completed.returncode == -signal.SIGKILL
    thread.join()
    assert (others[0].stdout, others[0].end) == (b"other\\n", fdwait.End.EOF)
    """)


def test_an_exception_from_a_signal_handler_is_no_different() -> None:
    interrupting("""
    def handler(*_):
        raise RuntimeError("from a handler")
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.monotonic()
    try:
        fdwait.run(["sh", "-c", "printf out; exec sleep 30"])
        raise SystemExit("it was not interrupted")
    except RuntimeError as error:
        done = error.completed
    assert 0.3 <= time.monotonic() - start < 0.3 + 0.3 * SLACK
    assert (done.stdout, done.returncode) == (b"out", -signal.SIGKILL)
    assert done.end is done.stdout_end is None
    assert "end=error" in repr(done) and done.to_dict()["end"] is None
    assert_no_child()
    """)


@pytest.mark.parametrize("stop", ["None", "fdwait.Stop()"])
def test_a_handler_that_outlives_the_deadline_is_followed_by_a_last_look(stop: str) -> None:
    interrupting(f"""
    signal.signal(signal.SIGALRM, lambda *_: time.sleep(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    done = fdwait.run(["sh", "-c", "sleep 0.3; exit 3"], timeout=0.7, stop={stop})
    assert (done.returncode, done.end) == (3, fdwait.End.EOF)
    """)


def test_b054_ctrl_c_in_a_long_start() -> None:
    interrupting("""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        fdwait.run(["true"], preexec_fn=lambda: time.sleep(20))
        raise SystemExit("it was not interrupted")
    except KeyboardInterrupt as error:
        assert error.completed.returncode == -signal.SIGKILL
    assert 0.3 <= time.monotonic() - start < 0.3 + 0.4 * SLACK
    assert_no_child()
    """)


def test_every_handler_waits_for_the_start(rounds: Rounds) -> None:
    """Not that of SIGINT alone. And each is there again afterwards, the same."""
    interrupting(
        """
    class Alarm(Exception):
        pass
    def alarm(*_):
        raise Alarm
    signal.signal(signal.SIGALRM, alarm)
    signal.siginterrupt(signal.SIGALRM, False)
    for i in range(int(sys.argv[1])):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00002 * (i % 100 + 1))
            fdwait.run(["sleep", "0.01"])
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            pass
        assert_no_child()
    assert signal.getsignal(signal.SIGALRM) is alarm
    """,
        str(rounds(100, 3000)),
    )


def test_an_interrupt_in_a_fork_of_pythons() -> None:
    """Whoever starts afterwards waits for nobody."""
    interrupting("""
    import _thread
    os.register_at_fork(before=_thread.interrupt_main)
    for _ in range(3):
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            pass
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    start = time.monotonic()
    fdwait.run(["true"])
    assert time.monotonic() - start < 0.5 * SLACK
    """)


def test_b052_signals_whose_handlers_return_change_nothing() -> None:
    interrupting("""
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    start = time.monotonic()
    try:
        fdwait.run(["sleep", "30"], input=bytes(1 << 20), timeout=0.55)
        raise SystemExit("no time-out")
    except subprocess.TimeoutExpired as error:
        assert 0.55 <= time.monotonic() - start < 0.55 + 0.3 * SLACK
        assert error.completed.returncode == -signal.SIGKILL
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(ticks) >= 5
    """)


def test_an_interrupt_at_any_moment_leaves_nothing_behind(rounds: Rounds) -> None:
    """Where it comes after the start, the exception has what there was."""
    interrupting(
        """
    import random
    moments = random.Random(1)
    outcomes = set()
    for i in range(int(sys.argv[1])):
        done = None
        seconds = "30" if i % 10 == 0 else "0.003"
        main = threading.main_thread().ident
        timer = threading.Timer(moments.uniform(0, 0.008), signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            done = fdwait.run(["sh", "-c", "printf out; sleep " + seconds], input="in", text=True)
            while True:
                timer.join()
        except KeyboardInterrupt as error:
            done = getattr(error, "completed", done)
            assert done is None or done.stdout in ("out", b"out", b""), done
        timer.join()
        outcomes.add(done and done.returncode)
        assert_no_child()
    assert {0, -signal.SIGKILL} <= outcomes, outcomes
    """,
        str(rounds(100, 3000)),
    )
