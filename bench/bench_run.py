"""Running commands under pytest-benchmark: `python -m pytest bench/bench_run.py`."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.drains import MIB
from bench.runs import OUTPUT, RUNNERS, THROUGH_CAT, Work


@pytest.mark.parametrize("runner", RUNNERS)
def test_true(benchmark: BenchmarkFixture, runner: str) -> None:
    benchmark(RUNNERS[runner], ["true"])


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("work", "mib"), [(OUTPUT, 256), (THROUGH_CAT, 64)], ids=["output", "through cat"])
def test_bytes(benchmark: BenchmarkFixture, runner: str, work: Work, mib: int) -> None:
    benchmark.pedantic(work.prepare(runner, mib * MIB), rounds=5, warmup_rounds=1)
