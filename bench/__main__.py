"""`python -m bench`: the table of ratios, ours beside the others'.

A ratio says how many times as fast ours is: above 1 is faster, below 1 slower. It is the median of the
rounds' ratios.
"""

import argparse
import contextlib
import os
import platform
import statistics
import timeit
from collections.abc import Callable, Iterable, Sequence

import fdwait
from bench import calls, drains, memory, runs
from bench.measure import Rounds, interleave, raise_descriptor_limit, speed, spinning

DESCRIPTORS = 12_000  # two for each of 5000 pipes

# How long one measurement takes at least, in seconds. Beside a spinning thread a system call made from Python costs
# up to 5 ms, or next to nothing when no other core is there to take the GIL up: it takes many to see both.
LEAST = {"alone": 0.005, "beside a spinner": 0.1}
LEAST_OF_RUNS = 0.5  # the start of the command is in it


def print_table(title: str, unit: str, scale: float, taken: Rounds, ours: Sequence[str]) -> None:
    print(f"\n{title}\n  {'':28}{unit:>10}" + "".join(f"{name:>22}" for name in ours))
    for name, seconds in taken.items():
        ratios = ["" if name == mine else f"{speed(taken, mine, name):.2f} x" for mine in ours]
        cells = "".join(f"{ratio:>22}" for ratio in ratios)
        print(f"  {name:28}{statistics.median(seconds) * scale:10.3f}{cells}".rstrip(), flush=True)


def enough(seconds_for: Callable[[int], float], least: float, start: int, most: int) -> int:
    """The number, doubled from `start` on, for which it takes `least` seconds."""
    number = start
    while number < most and seconds_for(number) < least:
        number *= 2
    return min(number, most)


def table_of_calls(groups: Iterable[calls.Group], rounds: int, least: float) -> None:
    def case(statement: str, names: calls.Names) -> Callable[[], float]:
        loop = timeit.Timer(statement, globals=names)
        number = enough(loop.timeit, least, 10, 1 << 20)
        return lambda: loop.timeit(number) / number

    for group in groups:
        with group.prepare() as names:
            cases = {name: case(statement, names) for name, statement in group.statements.items()}
            taken = interleave(cases, rounds)
        print_table(group.title, "us", 1e6, taken, list(taken)[:1])


def table_of_drains(mib: int, rounds: int, least: float) -> None:
    def case(name: str) -> Callable[[], float]:
        number = enough(lambda n: drains.seconds(name, n * drains.MIB), 5 * least, 1, mib)
        return lambda: drains.seconds(name, number * drains.MIB) / number

    taken = interleave({name: case(name) for name in drains.CASES}, rounds)
    print_table(f"reading {mib} MiB to the end", "ms/MiB", 1e3, taken, list(taken)[:2])


def table_of_runs(mib: int, rounds: int) -> None:
    def taken(seconds: Callable[[str, int], float], most: int) -> Rounds:
        def case(name: str) -> Callable[[], float]:
            number = enough(lambda n: seconds(name, n), LEAST_OF_RUNS, 1, most)
            return lambda: seconds(name, number) / number

        return interleave({name: case(name) for name in runs.RUNNERS}, rounds)

    ours = list(runs.RUNNERS)[:1]
    print_table("running true", "us", 1e6, taken(runs.seconds_of_true, 1 << 10), ours)
    for work, size in ((runs.OUTPUT, mib), (runs.THROUGH_CAT, fed(mib))):
        print_table(f"running a command, {size} MiB {work.title}", "ms/MiB", 1e3, taken(work.seconds, size), ours)


def fed(mib: int) -> int:
    """How much of it goes in, where it has to come out again."""
    return max(1, mib // 4)


def table_of_memory(mib: int) -> None:
    for names, size in ((memory.OF_DRAINS, mib), (memory.OF_OUTPUT, mib), (memory.THROUGH_CAT, fed(mib))):
        print(f"\npeak memory of {size} MiB, relative to the data")
        for name in names:
            print(f"  {name:28}{memory.ratio(name, size * drains.MIB):10.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parts = ("waits", "select", "drain", "run", "memory")
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)} (default: all)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mib", type=int, default=256, help="what is drained; a quarter of it is fed (default: 256)")
    options = parser.parse_args()
    if not set(options.parts) <= set(parts):
        parser.error(f"the parts are {', '.join(parts)}")
    chosen = options.parts or parts
    if "select" in chosen and not raise_descriptor_limit(DESCRIPTORS):
        parser.error(f"select takes {DESCRIPTORS} descriptors, and the hard limit is lower: run the other parts")

    print(
        f"fdwait {fdwait.info()['fdwait']}, {platform.python_implementation()}"
        f" {platform.python_version()}, {platform.system()} {platform.release()},"
        f" {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    print("Ratios: how many times as fast ours is (above 1: faster).")
    if os.getloadavg()[0] > 0.5:
        print("THE MACHINE IS NOT QUIET: what stands beside a spinner means little then.")
    for circumstance, least in LEAST.items():
        print(f"\n== {circumstance} ==")
        spin = circumstance != "alone"
        rounds = max(1, options.rounds // 3) if spin else options.rounds
        with spinning() if spin else contextlib.nullcontext():
            if "waits" in chosen:
                table_of_calls(calls.WAITS, rounds, least)
            if "select" in chosen:
                table_of_calls(calls.SELECTS, rounds, least)
            if "drain" in chosen:
                table_of_drains(options.mib, rounds, least)
            if "run" in chosen:
                table_of_runs(options.mib, rounds)
    if "memory" in chosen:
        table_of_memory(options.mib)


if __name__ == "__main__":
    main()
