"""Each system call of the core fails once, with each errno it can give: no false end, no lost byte, no leaked
descriptor, no child left, no signal mask changed, and an exception that says what happened, or none where there is
another way."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_scenarios import SCENARIOS

HERE = Path(__file__).parent
COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the shim knows the system calls of Linux"),
    pytest.mark.skipif(COMPILER is None, reason="the shim is C, and there is no compiler cc"),
]


class Outcome(NamedTuple):
    call: str
    error: str
    nth: int
    hits: int
    problem: str | None


@pytest.fixture(scope="module")
def run_scenario(tmp_path_factory: pytest.TempPathFactory):
    """run_scenario(name) -> its outcomes. A scenario is run once."""
    shim = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    source = HERE / "c" / "fault_shim.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"], check=True)
    # Before a sanitizer that is preloaded too: its interceptors would be all that the shim sees of the callers.
    preload = " ".join(filter(None, [str(shim), os.environ.get("LD_PRELOAD")]))

    @functools.cache
    def run(name: str) -> list[Outcome]:
        done = subprocess.run(
            [sys.executable, HERE / "fault_scenarios.py", name],
            check=False,
            env=os.environ | {"LD_PRELOAD": preload},
            capture_output=True,
            text=True,
            timeout=50,
        )
        outcomes = [Outcome(*json.loads(line)) for line in done.stdout.splitlines()]
        assert done.returncode == 0, f"after {outcomes[-1:]}: {done.stderr}"
        return outcomes

    return run


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_failure_does_no_harm(run_scenario, scenario):
    outcomes = run_scenario(scenario)
    assert sum(outcome.hits for outcome in outcomes) > 0
    assert [outcome for outcome in outcomes if outcome.problem] == []


@pytest.mark.skipif("FDWAIT_BACKEND" in os.environ, reason="a forced backend leaves some calls out")
def test_every_kind_of_call_was_made_to_fail(run_scenario):
    hit = {o.call for scenario in SCENARIOS for o in run_scenario(scenario) if o.hits}
    assert hit >= {
        "epoll_create1", "epoll_ctl_add", "epoll_ctl_mod", "epoll_wait", "poll", "ppoll", "pselect",
        "readv", "preadv2", "recvmsg", "fcntl_getfd", "fcntl_getpipesz", "fstat", "pidfd_open",
        "write", "pwritev2", "send", "fcntl_getfl", "fcntl_setfl", "fcntl_dupfd", "ioctl_fionread", "ioctl_tiocgptn",
        "tcgetattr", "waitid", "kill", "getsockopt", "lseek", "pipe2", "madvise", "malloc", "calloc", "realloc", "mmap",
    }  # fmt: skip
