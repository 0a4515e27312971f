"""Reading 256 MiB under pytest-benchmark: `python -m pytest bench/bench_drain.py`."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.drains import CASES, MIB, seconds


@pytest.mark.parametrize("name", CASES)
def test_drain(benchmark: BenchmarkFixture, name: str) -> None:
    """The whole run, with the start of the writer; the table of `python -m bench` leaves that out."""
    benchmark.pedantic(seconds, (name, 256 * MIB), rounds=5, warmup_rounds=1)
