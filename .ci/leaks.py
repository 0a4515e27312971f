"""Every way through the core once, the failing ones too; then LeakSanitizer is asked. Run under libasan.

It is asked here and not at the exit of the process, where it would find what Python itself leaves behind."""

import ctypes
import gc
import os
import subprocess
import threading

import fdwait
from fdwait import FdWaiter, Stop, Window, drain
from fdwait._native import lib


def pipe_with(data: bytes) -> int:
    r, w = os.pipe()
    os.write(w, data)
    os.close(w)
    return r


def drains() -> None:
    for keep in (None, Window(head=10, tail=10), Window(head=0, tail=100_000)):
        for size in (0, 1, 60_000):
            r = pipe_with(b"x" * size)
            drain(r, keep=keep)
            os.close(r)
    with open("/dev/zero", "rb", buffering=0) as zero:
        drain(zero, limit=5_000_000)
        drain(zero, limit=5_000_000, keep=Window(head=10, tail=3_000_000))


def drains_of_a_process() -> None:
    with subprocess.Popen(["sh", "-c", "echo x; sleep 0.05"], stdout=subprocess.PIPE) as process:
        drain(process.stdout, process=process, linger=0.01)


def drains_cut_short() -> None:
    r, w = os.pipe()
    os.write(w, b"x" * 50_000)
    drain(r, timeout=0.01, limit=100)
    drain(r, timeout=0)
    stop = Stop()
    threading.Timer(0.02, stop.set).start()
    drain(r, stop=stop)
    os.close(w)
    os.close(r)
    for bad in (r, 99_999):
        try:
            drain(bad)
        except OSError:
            pass
        else:
            raise AssertionError("a closed descriptor was drained")


def waits() -> None:
    r, w = os.pipe()
    with FdWaiter(r) as waiter, FdWaiter(w, fdwait.WRITE) as writer, open(__file__) as file:
        FdWaiter(file).close()
        waiter.wait(0.01)
        writer.wait()
    fdwait.wait_readable(r, 0)
    fdwait.select([r], [w], [], 0)
    fdwait.select([r] * 100, [w] * 100, [r], 0)
    fdwait.info()
    os.close(r)
    os.close(w)
    try:
        FdWaiter(r)
    except OSError:
        pass
    else:
        raise AssertionError("a closed descriptor was waited on")


def feeds() -> None:
    r, w = os.pipe()
    fdwait.feed(w, b"x" * 1000, block=100, progress=lambda _: None, stop=Stop())
    for data, timeout in (b"x" * 1_000_000, 0), (b"x" * 1_000_000, 0.01):
        try:
            fdwait.feed(w, data, timeout=timeout)
        except TimeoutError:
            pass
        else:
            raise AssertionError("a full pipe took it")
    os.close(r)
    os.close(w)
    try:
        fdwait.feed(w, b"x")
    except OSError:
        pass
    else:
        raise AssertionError("a closed descriptor was fed")


def runs() -> None:
    fdwait.run(["cat"], input=b"x" * 1_000_000, keep=Window(head=10, tail=100_000), stop=Stop())
    for command, error in (["sleep", "9"], subprocess.TimeoutExpired), (["/no/such"], OSError):
        try:
            fdwait.run(command, input=b"x" * 1_000_000, timeout=0.05)
        except error:
            pass
        else:
            raise AssertionError(f"{command} ran")


def found_leaks() -> bool:
    gc.collect()
    return bool(ctypes.CDLL(None).__lsan_do_recoverable_leak_check())


WAYS = [drains, drains_of_a_process, drains_cut_short, waits, feeds, runs]

for way in WAYS * 3:
    way()
assert not found_leaks()
for _ in range(100):
    lib.fdw_stop_new()
assert found_leaks(), "a planted leak was not found: the check itself is broken"
print(f"{len(WAYS)} passed, 0 failed")
