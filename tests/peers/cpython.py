"""Runs tests of CPython's own over a function of fdwait: what the scripts beside this file share.

The tests come unmodified from the standard library's `test` package (Debian has it in libpython3-testsuite), each
suite in an interpreter of its own. Every descriptor above 1023 takes 4096 descriptors; standard output is moved
there, too.
"""

import argparse
import fcntl
import importlib
import json
import os
import resource
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CEILING = 1024
DESCRIPTORS = 4096


@dataclass(frozen=True)
class Run:
    suite: str
    replaced: bool = False
    high: bool = False
    must_fail: Mapping[str, str] = field(default_factory=dict)
    """Class.test, and why it fails; all others must not."""


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


@dataclass(frozen=True)
class Peer:
    """Runs of CPython's tests of one function, which has the same name in fdwait."""

    module: str
    function: str
    runs: Sequence[Run]
    concerns: Callable[[unittest.TestCase], bool] = lambda test: True
    """Which of the tests are run."""

    def main(self) -> int:
        """Print a table of all runs. 0 only if everything went as it must."""
        parser = argparse.ArgumentParser(description=f"CPython's own {self.module} tests over fdwait.{self.function}.")
        parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
        options = parser.parse_args()
        if options.child is not None:
            self._child(self.runs[options.child])
            return 0
        try:
            for run in self.runs:
                importlib.import_module(run.suite)
        except ImportError as error:
            print(f"CPython's test package is not installed: {error}", file=sys.stderr)
            return 2
        print(f"{'suite':22}{'with':46}{'tests':>6}{'skipped':>9}  result")
        went_well = [self._report(number) for number in range(len(self.runs))]
        return 0 if all(went_well) else 1

    def _child(self, run: Run) -> None:
        """Run one suite and print what came of it as JSON."""
        if run.high:
            occupy_low_descriptors()
        if run.replaced:
            import fdwait

            setattr(importlib.import_module(self.module), self.function, getattr(fdwait, self.function))
        importlib.import_module("test.support").verbose = 0
        module = importlib.import_module(run.suite)  # after the replacement, should it look at import
        tests = tests_of(unittest.defaultTestLoader.loadTestsFromModule(module))
        chosen = unittest.TestSuite(filter(self.concerns, tests))
        result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(chosen)
        bad = sorted(".".join(test.id().split(".")[-2:]) for test, _ in result.failures + result.errors)
        sys.stdout.flush()
        outcome = {
            "ran": result.testsRun,
            "skipped": len(result.skipped),
            "bad": bad,
            "has_children": has_children(),
        }
        os.write(1, b"\n" + json.dumps(outcome).encode())

    def _report(self, number: int) -> bool:
        """Make one run in a fresh interpreter, print its row, and tell whether it went as it must."""
        run = self.runs[number]
        done = subprocess.run(
            [sys.executable, sys.argv[0], "--child", str(number)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        name = f"{'fdwait' if run.replaced else self.module}.{self.function}"
        row = f"{run.suite:22}{name + (', all descriptors above 1023' if run.high else ''):46}"
        if done.returncode:
            print(f"{row}{'':15}  exit status {done.returncode}", flush=True)
            print(done.stderr, file=sys.stderr)
            return False
        outcome = json.loads(done.stdout.rpartition("\n")[2])
        well = outcome["ran"] > 0 and outcome["bad"] == sorted(run.must_fail) and not outcome["has_children"]
        verdict = f"{len(outcome['bad'])} failed" if outcome["bad"] else "passed"
        if well and run.must_fail:
            verdict += ", as it must:"
        print(f"{row}{outcome['ran']:>6}{outcome['skipped']:>9}  {verdict}", flush=True)
        for test in sorted({*outcome["bad"], *run.must_fail}):
            note = run.must_fail.get(test, "MUST NOT FAIL")
            print(f"  {test}: {note}{'' if test in outcome['bad'] else ' -- BUT DID NOT FAIL'}", flush=True)
        if outcome["has_children"]:
            print("  A CHILD IS LEFT BEHIND", flush=True)
        if not well:
            print(done.stderr, file=sys.stderr)
        return well


def occupy_low_descriptors() -> None:
    """Leave no free descriptor below the ceiling, and move standard output above it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    high = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, CEILING)
    sys.stdout = sys.__stdout__ = open(high, "w", closefd=False)  # noqa: SIM115
    while os.open(os.devnull, os.O_RDONLY) < CEILING:
        pass


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
