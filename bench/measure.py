"""How the figures are taken: interleaved rounds, and the median over the rounds."""

import contextlib
import resource
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping

Rounds = dict[str, list[float]]  # name of the case -> its seconds, one a round


def interleave(cases: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Run all cases once a round, in turns, so that a change in the machine's pace meets all of them.

    Every other round goes backwards: no case always runs just after the same neighbour.
    """
    taken: Rounds = {name: [] for name in cases}
    order = list(cases)
    for _ in range(rounds):
        for name in order:
            taken[name].append(cases[name]())
        order.reverse()
    return taken


def speed(taken: Rounds, ours: str, other: str) -> float:
    """How many times as fast as `other` we are: the median of the rounds' ratios."""
    return statistics.median(b / a for a, b in zip(taken[ours], taken[other], strict=True))


@contextlib.contextmanager
def spinning() -> Iterator[None]:
    """One other Python thread that wants the GIL all the time."""
    done = False

    def spin() -> None:
        while not done:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        done = True
        thread.join()


def raise_descriptor_limit(wanted: int) -> bool:
    """Whether this process may now open `wanted` descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return False
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return True
