"""fork(): parent and child do not see or disturb each other. Each test is a program of its own."""

from __future__ import annotations

import pytest
from support import run_program

PARENT_AND_CHILD = """
import os
import fdwait
from fdwait import READ, FdWaiter, Stop, drain, End
from support import *

def in_child(function):
    '''Run it in a fork; its assertions are checked here.'''
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            if status:
                import traceback
                traceback.print_exc()
            os._exit(status)
    return pid

def succeeded(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""


def forking(code: str) -> None:
    assert run_program(PARENT_AND_CHILD + code).endswith("done\n")


def test_b048_each_side_sees_its_own_readiness() -> None:
    forking(
        """
r, w = os.pipe()
parents = FdWaiter(r)
assert parents.wait(0) is False

def child():
    # A pipe of its own at the number that the parent watches.
    mine_r, mine_w = os.pipe()
    os.dup2(mine_r, r)
    with FdWaiter(r) as waiter:
        for _ in range(100):
            assert waiter.wait(0) is False
            assert fdwait.wait_readable(r, 0) is False
            assert fdwait.select([r], [], [], 0) == ([], [], [])
            os.write(mine_w, b"c")
            assert waiter.wait(1) is True
            assert fdwait.select([r], [], [], 1)[0] == [r]
            os.read(r, 1)

pid = in_child(child)
for _ in range(100):
    assert parents.wait(0) is False
    os.write(w, b"p")
    assert parents.wait(1) is True
    os.read(r, 1)
succeeded(pid)
parents.close()
print("done")
"""
    )


@pytest.mark.parametrize("how", ["wait", "close", "drop", "wait and close"])
def test_what_a_child_does_to_an_inherited_waiter_leaves_the_parents_alone(how: str) -> None:
    forking(
        f"""
import gc
r, w = os.pipe()
waiter = FdWaiter(r)
waiter.wait(0)
how = {how!r}

def child():
    global waiter
    table = descriptors()
    if "wait" in how:
        # The right answer, or a refusal, and the same each time.
        def ask():
            try:
                return waiter.wait(0.01)
            except RuntimeError as error:
                return type(error)
        answers = [ask() for _ in range(3)]
        assert answers in ([False] * 3, [RuntimeError] * 3), answers
    if "close" in how:
        waiter.close()
        waiter.close()
    if how == "drop":
        del waiter
        gc.collect()
    # Nothing that is not the waiter's own was closed.
    assert set(table) - set(descriptors()) <= {{fd for fd in table if "eventpoll" in table[fd]}}
    os.fstat(r)

succeeded(in_child(child))
assert waiter.wait(0) is False
os.write(w, b"x")
assert waiter.wait(5) is True
waiter.close()
print("done")
"""
    )


def test_everything_works_in_a_child() -> None:
    forking(
        """
def use_everything():
    r, w = os.pipe()
    with FdWaiter(r) as waiter:
        assert waiter.wait(0.01) is False
        os.write(w, b"x")
        assert waiter.wait(5) is True
    assert fdwait.wait_readable(r, 0) and fdwait.wait_writable(w, 0)
    assert fdwait.select([r], [w], [], 0) == ([r], [w], [])
    stop = Stop()
    task = Task(drain, r, stop=stop)
    let_it_sleep()
    stop.set()
    result = task.result(5)
    assert (result.data, result.end) == (b"x", End.STOPPED)
    os.write(w, b"data")
    os.close(w)
    assert drain(r).data == b"data"
    os.close(r)

use_everything()
def child():
    use_everything()
    succeeded(in_child(use_everything))  # and in its child
succeeded(in_child(child))
use_everything()
print("done")
"""
    )


def test_a_stop_set_in_the_child_does_not_stop_the_parent() -> None:
    forking(
        """
r, w = os.pipe()
stop = Stop()
task = Task(drain, r, stop=stop)
let_it_sleep()

def child():
    stop.set()
    assert stop.is_set()

succeeded(in_child(child))
assert not stop.is_set()
os.write(w, b"still draining")
let_it_sleep()
assert task.is_alive()
stop.set()
result = task.result(5)
assert (result.data, result.end) == (b"still draining", End.STOPPED)
print("done")
"""
    )


def test_an_inherited_stop_works_in_the_child() -> None:
    forking(
        """
r, w = os.pipe()
stop = Stop()
task = Task(drain, r, stop=stop)  # in use in the parent when it forks
let_it_sleep()

def child():
    mine, _ = os.pipe()
    task = Task(drain, mine, stop=stop)
    let_it_sleep()
    stop.set()
    assert task.result(5).end is End.STOPPED

succeeded(in_child(child))
stop.set()
assert task.result(5).end is End.STOPPED
print("done")
"""
    )


def test_forks_while_other_threads_wait_and_drain() -> None:
    forking(
        """
pipes = [os.pipe() for _ in range(6)]
stop = Stop()
tasks = [Task(drain, r, stop=stop) for r, _ in pipes[:3]]
tasks += [Task(FdWaiter(r).wait) for r, _ in pipes[3:]]
let_it_sleep()

def child():
    r, w = os.pipe()
    os.write(w, b"x")
    assert fdwait.wait_readable(r, 0)
    with FdWaiter(r) as waiter:
        assert waiter.wait(0)
    assert drain(r, timeout=0).data == b"x"

for _ in range(20):
    succeeded(in_child(child))
assert all(task.is_alive() for task in tasks)
stop.set()
for _, w in pipes[3:]:
    os.write(w, b"x")
for task in tasks:
    task.result(5)
print("done")
"""
    )


def test_a_child_without_exec_keeps_the_parents_eof_away_and_drain_says_so() -> None:
    """A fork that lives on holds the write end: the drain ends by linger, and says EXITED."""
    forking(
        """
import subprocess, time
r, w = os.pipe()
process = subprocess.Popen(["echo", "out"], stdout=w)
go_r, go_w = os.pipe()
def child():
    os.close(go_w)
    os.read(go_r, 1)  # until the parent closes its end
pid = in_child(child)
os.close(w)
result = drain(r, process=process)
assert (result.data, result.end) == (b"out\\n", End.EXITED), result
os.close(go_w)
succeeded(pid)
assert drain(r).end is End.EOF
assert process.wait() == 0
print("done")
"""
    )
