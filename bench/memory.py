"""Peak memory of a drain: how far the resident set rises above where it stood, relative to the data.

`python -m bench.memory CASE BYTES` prints the rise in bytes; each case needs a fresh process.
"""

import subprocess
import sys
from pathlib import Path

from bench.drains import DRAINS, MIB
from bench.programs import writer


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"the kernel does not tell {field}")


def rise(name: str, size: int) -> int:
    """The rise in this process. Linux only: elsewhere the high-water mark cannot be set back."""
    for amount in (MIB, size):  # the first drain brings in code and tables, which are not the data's
        with writer(amount) as source:
            assert source.stdout is not None
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
            before = _status("VmRSS")
            DRAINS[name](source.stdout.fileno())
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
