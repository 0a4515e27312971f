"""CPython's own tests of the select module, run over fdwait.select. `python tests/peers/cpython_select.py`

The tests come unmodified from the standard library's `test` package, each suite in an interpreter of its own:

  test.test_select   as it is; with select.select replaced; and that again with every descriptor above 1023.
                     The last run is also made with the standard library's select, and must fail there: that
                     proves that the descriptors really are above 1023.
  test.test_poll,    as they are, and with select.select replaced: the rest of the module must not notice.
  test.test_epoll

What they need: the package `test` (Debian has it in libpython3-testsuite) and 4096 descriptors. Three tests
of test_select hand a descriptor to select(): test_select the pipe of a child, test_errno the number of a closed
file, test_select_mutated standard output. So standard output is moved above 1023 as well. The other three
use none. test_poll2 of test_poll sleeps for ten seconds. test_epoll is skipped where there is no epoll.

Prints a table; the exit status is 0 only if everything went as it must.
"""

import argparse
import fcntl
import importlib
import json
import os
import resource
import select
import subprocess
import sys
import unittest
from dataclasses import dataclass

CEILING = 1024
DESCRIPTORS = 4096


@dataclass(frozen=True)
class Run:
    suite: str
    replaced: bool = False
    high: bool = False
    must_fail: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        whose = "fdwait.select" if self.replaced else "select.select"
        return whose + (", all descriptors above 1023" if self.high else "")


RUNS = (
    Run("test.test_select"),
    Run("test.test_select", replaced=True),
    Run("test.test_select", replaced=True, high=True),
    Run("test.test_select", high=True, must_fail=("test_errno", "test_select", "test_select_mutated")),
    Run("test.test_poll"),
    Run("test.test_poll", replaced=True),
    Run("test.test_epoll"),
    Run("test.test_epoll", replaced=True),
)


def occupy_low_descriptors() -> None:
    """Leave no free descriptor below the ceiling, and move standard output above it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    high = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, CEILING)
    sys.stdout = sys.__stdout__ = open(high, "w", closefd=False)  # noqa: SIM115
    while os.open(os.devnull, os.O_RDONLY) < CEILING:
        pass


def child(run: Run) -> None:
    """Run one suite and print what came of it as JSON."""
    if run.high:
        occupy_low_descriptors()
    if run.replaced:
        import fdwait

        select.select = fdwait.select  # type: ignore[assignment]
    importlib.import_module("test.support").verbose = 0
    module = importlib.import_module(run.suite)  # after the replacement, should it look at import
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
    bad = sorted(test.id().rpartition(".")[2] for test, _ in result.failures + result.errors)
    sys.stdout.flush()
    outcome = {"ran": result.testsRun, "skipped": len(result.skipped), "bad": bad}
    os.write(1, b"\n" + json.dumps(outcome).encode())


def report(run: Run) -> bool:
    """Run one suite in a fresh interpreter, print its row, and tell whether it went as it must."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(RUNS.index(run))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    row = f"{run.suite:18}{run.name:44}"
    if done.returncode:
        print(f"{row}{'':15}  exit status {done.returncode}", flush=True)
        print(done.stderr, file=sys.stderr)
        return False
    outcome = json.loads(done.stdout.rpartition("\n")[2])
    well = outcome["ran"] > 0 and outcome["bad"] == list(run.must_fail)
    verdict = "failed: " + ", ".join(outcome["bad"]) if outcome["bad"] else "passed"
    if run.must_fail:
        verdict += ", as it must" if well else ", BUT MUST FAIL: " + ", ".join(run.must_fail)
    print(f"{row}{outcome['ran']:>6}{outcome['skipped']:>9}  {verdict}", flush=True)
    if not well:
        print(done.stderr, file=sys.stderr)
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description="CPython's own select tests over fdwait.select.")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(RUNS[options.child])
        return 0
    try:
        importlib.import_module("test.test_select")
    except ImportError as error:
        print(f"CPython's test package is not installed: {error}", file=sys.stderr)
        return 2
    print(f"{'suite':18}{'with':44}{'tests':>6}{'skipped':>9}  result")
    went_well = [report(run) for run in RUNS]
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main())
