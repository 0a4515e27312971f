"""Single calls under pytest-benchmark: `python -m pytest bench/bench_calls.py`."""

import contextlib

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.calls import SELECTS, WAITS, Group
from bench.measure import raise_descriptor_limit, spinning

GROUPS = (*WAITS, *SELECTS)


@pytest.mark.parametrize("spin", [False, True], ids=["alone", "beside a spinner"])
@pytest.mark.parametrize(
    ("group", "name"),
    [pytest.param(g, n, id=f"{g.title}-{n}") for g in GROUPS for n in g.statements],
)
def test_call(benchmark: BenchmarkFixture, group: Group, name: str, spin: bool) -> None:
    assert raise_descriptor_limit(12_000), "5000 pipes need 12000 descriptors"
    benchmark.group = group.title + (", beside a spinner" if spin else "")
    with group.prepare() as names, spinning() if spin else contextlib.nullcontext():
        exec(f"def call():\n    {group.statements[name]}", names)
        if spin:  # up to 5 ms each: few rounds tell enough
            benchmark.pedantic(names["call"], rounds=5, iterations=50)
        else:
            benchmark(names["call"])
