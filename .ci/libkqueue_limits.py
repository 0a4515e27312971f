"""pytest plugin for the tests on libkqueue 2.3.1: leaves out what it does not imitate of a BSD kernel.

tests/c/test_kqueue.c has the answers that are missing here, and build_wheels.yml runs the tests on real kernels.
"""

import re

import pytest
import support

# It keeps the epoll, the eventfds and the pipes of closed kqueues for a while: no accounts of descriptors.
support.descriptors = dict

CLOSED = "it does not tell that a registered descriptor was closed"
BOTH = "with both filters on one descriptor it reports the read filter only"
DEVICE = "it takes devices and eventfds, and is never or always ready for them"
HANGUP = "it calls a hung-up read end writable"
COUNT = "it opens several descriptors for each kqueue, and gives them back late"
THREADS = "it crashes, fails or never comes back when kqueues are made and closed in many threads"

LIMITS = {
    r"test_conformance.py::test_(closed|reused_number|number_reused_\w+)\[.*kqueue": CLOSED,
    r"test_conformance.py::test_waiter\[(pipe|FIFO|socketpair|TCP|PTY).*-both-.*kqueue": BOTH,
    r"test_conformance.py::test_waiter\[(null device|zero device|eventfd).*kqueue": DEVICE,
    r"test_conformance.py::test_waiter\[(pipe|FIFO), read end: .*hang-up-write-.*kqueue": HANGUP,
    r"test_properties.py::test_descriptors_against_a_model": BOTH,
    r"test_waiter.py::test_always_ready": DEVICE,
    r"test_descriptors.py::test_(closed_by_another_thread\w+|errors_leave_nothing)": CLOSED,
    r"test_(fdsetsize.py::test_b001_a_failed_wait|spin.py::test_b024_a_closed_descriptor_beside)": CLOSED,
    r"test_descriptors.py::test_(b036|b040|numbers_0_to_2|limit)\w*": COUNT,
    r"test_waiter.py::test_a_(waiter_costs|dropped_waiter)\w*": COUNT,
    r"test_stop.py::test_stops_cost_no_descriptor_each": COUNT,
    r"test_feed_ends.py::test_(a_number_that_another|the_main_thread_notices_sooner|b038)\w*": CLOSED,
    r"test_run_processes.py::test_(few_free|somebody_closes|a_worker_keeps)\w*": COUNT,
    r"test_run_signals.py": COUNT,
    r"test_threads.py": THREADS,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in LIMITS.items():
            if re.search(pattern, item.nodeid):
                item.add_marker(pytest.mark.skip(reason=f"libkqueue: {reason}"))
