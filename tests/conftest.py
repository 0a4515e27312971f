"""Watchdog, descriptor accounts and the fixtures that every test file shares."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from support import HIGH, Owner, descriptors, raise_limit

import fdwait

SECONDS = 60  # for one test; twenty times that with --soak


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="repetitions in full: 1000 instead of 25")


def pytest_configure(config: pytest.Config) -> None:
    # The traceback of a hang has to reach the real stderr, not the file that captures it.
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[real_stderr] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    config.stash[real_stderr].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = SECONDS * (20 if config.getoption("--soak") else 1)
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is None or not mark.args:
            kwargs = mark.kwargs if mark else {}
            item.add_marker(pytest.mark.timeout(seconds, **kwargs), append=False)


real_stderr = pytest.StashKey()


@pytest.hookimpl(wrapper=True, trylast=True)  # inside that of pytest itself, which only reports
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    # pytest-timeout ends a test that Python can still end. Behind it stands a watchdog that needs no
    # Python at all, for a call that never comes back.
    mark = item.get_closest_marker("timeout")
    faulthandler.dump_traceback_later(mark.args[0] + 30, exit=True, file=item.config.stash[real_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session", autouse=True)
def ready_process() -> None:
    """Enough descriptors, and the one that fdwait keeps for the whole process made beforehand."""
    limit = raise_limit(12000)
    if limit < HIGH + 500:
        pytest.exit(f"the hard limit of open descriptors is {limit}: these tests need {HIGH + 500}")
    with Owner() as own:
        r, _ = own.pipe()
        fdwait.FdWaiter(r).close()
        stop = fdwait.Stop()
        stop.set()
        assert fdwait.drain(r, stop=stop).end is fdwait.End.STOPPED


@pytest.fixture(autouse=True)
def no_descriptor_left_behind(ready_process: None) -> Iterator[None]:
    before, limit = descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    if descriptors() != before:
        gc.collect()  # a traceback, or an interpreter without reference counts, frees late
    assert descriptors() == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit


@pytest.fixture
def own() -> Iterator[Owner]:
    """Opens descriptors; closes what is left of them after the test."""
    with Owner() as owner:
        yield owner


@pytest.fixture(params=["low", "high"])
def place(request: pytest.FixtureRequest, own: Owner) -> Callable[[int], int]:
    """Moves a descriptor of `own` above 1023, or leaves it where it is: the test is run both ways."""
    return own.up if request.param == "high" else lambda fd: fd


@pytest.fixture
def pipe(own: Owner, place: Callable[[int], int]) -> tuple[int, int]:
    """A pipe, below and above 1023: read end, write end."""
    r, w = own.pipe()
    return place(r), place(w)


@pytest.fixture
def high_pipe(own: Owner) -> tuple[int, int]:
    """A pipe above 1023 only, for tests that take their time."""
    r, w = own.pipe()
    return own.up(r), own.up(w)


@pytest.fixture
def held(own: Owner) -> None:
    """1100 descriptors are open, so everything new gets a number above 1023."""
    null = own(os.open(os.devnull, os.O_RDONLY))
    for _ in range(1100):
        own.dup(null)


@pytest.fixture
def start(own: Owner) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int]]]:
    """start(command) -> process, read end of its stdout. All that it started is killed at the end."""
    started = []

    def start(
        command: str | list[str],
        place: Callable[[int], int] = lambda fd: fd,
        **popen: object,
    ) -> tuple[subprocess.Popen[bytes], int]:
        r, w = own.pipe()
        r, w = place(r), place(w)
        args = ["sh", "-c", command] if isinstance(command, str) else command
        process = subprocess.Popen(args, stdout=w, start_new_session=True, **popen)
        own.close(w)
        started.append(process)
        return process, r

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a zombie
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """rounds(few, many): how often to repeat, `many` with --soak."""
    soak = request.config.getoption("--soak")
    return lambda few, many: many if soak else few
