"""The calls that are compared: for the table, for pytest-benchmark and for callgrind alike."""

import fcntl
import os
import select
import selectors
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import fdwait

Names = dict[str, Any]  # what the statements of a group may use
MODULES: Names = {"os": os, "select": select, "selectors": selectors, "fdwait": fdwait}


@dataclass(frozen=True)
class Group:
    """Statements that do the same thing; the first is ours."""

    title: str
    prepare: Callable[[], AbstractContextManager[Names]]
    statements: dict[str, str]


def registered(stack: ExitStack, fds: Iterable[int]) -> Names:
    """A selector, an epoll and a poll that watch `fds` for reading."""
    watchers: Names = {
        "selector": stack.enter_context(selectors.DefaultSelector()),
        "poll": select.poll(),
    }
    if hasattr(select, "epoll"):
        watchers["epoll"] = stack.enter_context(select.epoll())
    for fd in fds:
        for watcher in watchers.values():
            watcher.register(fd, 1)  # EVENT_READ, POLLIN and EPOLLIN are all 1
    return watchers


def pipe(stack: ExitStack) -> tuple[int, int]:
    r, w = os.pipe()
    stack.callback(os.close, r)
    stack.callback(os.close, w)
    return r, w


def one(stack: ExitStack, r: int, w: int) -> Names:
    waiter = stack.enter_context(fdwait.FdWaiter(r))
    return {"r": r, "w": w, "waiter": waiter} | MODULES | registered(stack, [r])


@contextmanager
def ready_pipe() -> Iterator[Names]:
    """A pipe with a byte in it: every wait on it comes back at once."""
    with ExitStack() as stack:
        r, w = pipe(stack)
        os.write(w, b"x")
        yield one(stack, r, w)


@contextmanager
def idle_pipe() -> Iterator[Names]:
    """An empty pipe: only a look comes back."""
    with ExitStack() as stack:
        yield one(stack, *pipe(stack))


@contextmanager
def echo() -> Iterator[Names]:
    """What is written to w comes back from another process: every wait sleeps."""
    cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    with cat, ExitStack() as stack:
        assert cat.stdin is not None
        assert cat.stdout is not None
        yield one(stack, cat.stdout.fileno(), cat.stdin.fileno())


def pipes(count: int) -> AbstractContextManager[Names]:
    """`count` empty pipes, but for a byte in the middle one."""

    @contextmanager
    def prepare() -> Iterator[Names]:
        with ExitStack() as stack:
            fds = []
            for i in range(count):
                r, low = os.pipe()
                # Out of the way, so that the readers have numbers that select.select takes.
                w = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, count + 1024)
                os.close(low)
                stack.callback(os.close, r)
                stack.callback(os.close, w)
                fds.append(r)
                if i == count // 2:
                    os.write(w, b"x")
            yield {"fds": fds} | MODULES | registered(stack, fds)

    return prepare()


@contextmanager
def ten_sockets() -> Iterator[Names]:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(10)]
        for end in sum(pairs, ()):
            stack.enter_context(end)
        pairs[5][1].send(b"x")
        yield {"sockets": [a for a, _ in pairs]} | MODULES


def group(title: str, prepare: Callable[[], AbstractContextManager[Names]], statements: dict[str, str]) -> Group:
    """A group of those statements that this platform has."""
    missing = {name for name in ("select.epoll",) if not hasattr(select, "epoll")}
    return Group(title, prepare, {n: s for n, s in statements.items() if n not in missing})


def waits(seconds: str, milliseconds: str) -> dict[str, str]:
    return {
        "FdWaiter.wait": f"waiter.wait({seconds})",
        "selectors": f"selector.select({seconds})",
        "select.epoll": f"epoll.poll({seconds})",
        "select.poll": f"poll.poll({milliseconds})",
        "select.select": f"select.select([r], [], [], {seconds})",
    }


WAITS = (
    group("a wait that finds data", ready_pipe, waits("1.0", "1000")),
    group("a wait without a time-out that finds data", ready_pipe, waits("", "")),
    group("a look that finds nothing", idle_pipe, waits("0", "0")),
    group(
        "a wait that sleeps until `cat` sends a byte back",
        echo,
        {name: f"os.write(w, b'x'); {wait}; os.read(r, 1)" for name, wait in waits("1.0", "1000").items()},
    ),
    group(
        "one wait that finds data, nothing kept",
        ready_pipe,
        {
            "wait_readable": "fdwait.wait_readable(r, 1.0)",
            "selectors": "s = selectors.DefaultSelector(); s.register(r, 1); s.select(1.0); s.close()",
            "select.poll": "p = select.poll(); p.register(r, 1); p.poll(1000)",
            "select.select": "select.select([r], [], [], 1.0)",
        },
    ),
)


def many(count: int) -> Group:
    """One list, for reading. All but the two select are spared the registration: it was made before."""
    statements = {"select": "fdwait.select(fds, [], [], 1.0)"}
    if count <= 500:
        statements["select.select"] = "select.select(fds, [], [], 1.0)"
    statements |= {
        "selectors": "selector.select(1.0)",
        "select.epoll": "epoll.poll(1.0)",
        "select.poll": "poll.poll(1000)",
    }
    return group(f"select() of {count}, one ready", lambda: pipes(count), statements)


def same(title: str, prepare: Callable[[], AbstractContextManager[Names]], arguments: str) -> Group:
    """Ours and the standard library's select with the same arguments."""
    return group(
        title,
        prepare,
        {
            "select": f"fdwait.select({arguments})",
            "select.select": f"select.select({arguments})",
        },
    )


def three_lists(count: int) -> Group:
    return same(f"select() of {count} in all three lists", lambda: pipes(count), "fds, fds, fds, 1")


SELECTS = (
    *(many(count) for count in (1, 10, 100, 500, 5000)),
    *(three_lists(count) for count in (1, 10, 100, 500)),
    same("select() of 10 sockets, one ready", ten_sockets, "sockets, [], [], 1.0"),
    same("a look with select() that finds nothing", idle_pipe, "[r], [], [], 0"),
)
