"""Peak memory of a call: how far the resident set rises above where it stood, relative to the data.

`python -m bench.memory CASE BYTES` prints the rise in bytes; each case needs a fresh process.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from bench import runs
from bench.drains import DRAINS, MIB
from bench.programs import writer

Prepare = Callable[[int], AbstractContextManager[Callable[[], object]]]  # for a size, the call that is measured


@contextmanager
def _drain(name: str, size: int) -> Iterator[Callable[[], object]]:
    with writer(size) as source:
        assert source.stdout is not None
        yield partial(DRAINS[name], source.stdout.fileno())


@contextmanager
def _run(runner: str, work: runs.Work, size: int) -> Iterator[Callable[[], object]]:
    yield work.prepare(runner, size)


def _runs(work: runs.Work) -> dict[str, Prepare]:
    return {f"{runner} {work.title}": partial(_run, runner, work) for runner in runs.RUNNERS}


OF_DRAINS: dict[str, Prepare] = {
    name: partial(_drain, name) for name in ("drain()", "drain(keep=Window)", "os.read(65536) + join")
}
OF_OUTPUT = _runs(runs.OUTPUT)
THROUGH_CAT = _runs(runs.THROUGH_CAT)
CASES = OF_DRAINS | OF_OUTPUT | THROUGH_CAT


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"the kernel does not tell {field}")


def rise(name: str, size: int) -> int:
    """The rise in this process. Linux only: elsewhere the high-water mark cannot be set back."""
    for amount in (MIB, size):  # the first call brings in code and tables, which are not the data's
        with CASES[name](amount) as call:
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
            before = _status("VmRSS")
            call()
            peak = _status("VmHWM")
    return peak - before


def ratio(name: str, size: int) -> float:
    """The rise in a fresh process, relative to the data."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", name, str(size)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return int(done.stdout) / size


if __name__ == "__main__":
    print(rise(sys.argv[1], int(sys.argv[2])))
