"""`python -m fdwait demo`: the fault and the cure, on this machine."""

import argparse
import contextlib
import errno
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from . import drain

NAME = "demo"
HELP = "see select() lose a command's output and drain() keep it, in five seconds"

HELD = 1100  # descriptors, as a service has them that is up for weeks
NEEDED = HELD + 100
COMFORTABLE = 4096

LINES = 150  # less than the smallest pipe takes, so that the command ends also where nobody reads
SCRIPT = f'i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo "line $i of the report"; done; exit 7'
PRINTED = b"".join(b"line %d of the report\n" % i for i in range(1, LINES + 1))
STATUS = 7


@dataclass(frozen=True)
class Outcome:
    """What the program that ran the command knows about it afterwards."""

    how: str
    fd: int
    data: bytes
    status: int
    ended_by: str

    def __str__(self) -> str:
        return f"  {self.how:16}{self.fd:>12}{len(self.data):>9}{self.status:>13}   {self.ended_by}"


def start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sh", "-c", SCRIPT], stdout=subprocess.PIPE, bufsize=0)


def with_select() -> Outcome:
    """Run the command as programs in the field do: what the wait raises is taken for the end."""
    with start() as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        chunks = []
        ended_by = "end of file"
        while True:
            try:
                if not select.select([fd], [], [], 0.1)[0]:
                    continue
                chunk = os.read(fd, 4096)
            except (OSError, ValueError) as error:
                ended_by = f"{type(error).__name__}, taken for the end"
                break
            if not chunk:
                break
            chunks.append(chunk)
        status = process.wait()
    return Outcome("select() loop", fd, b"".join(chunks), status, ended_by)


def with_drain() -> Outcome:
    """Run the command and let drain() collect what it prints."""
    with start() as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        drained = drain(process.stdout, process=process, timeout=60)
        status = process.wait()
    return Outcome("fdwait.drain()", fd, drained.data, status, str(drained.end))


@contextlib.contextmanager
def many_descriptors() -> Iterator[None]:
    """Hold HELD descriptors, with the soft limit raised if that takes it."""
    soft, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < COMFORTABLE:
        soft = COMFORTABLE if hard == resource.RLIM_INFINITY else min(hard, COMFORTABLE)
    if soft != resource.RLIM_INFINITY and soft < NEEDED:
        raise OSError(errno.EMFILE, f"the hard limit on open descriptors is {hard}")
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(HELD):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def advice(error: OSError) -> str:
    return (
        f"The demo needs {NEEDED} descriptors: {error.strerror}. Raise the hard limit and run it again:\n"
        f"as root `ulimit -Hn {COMFORTABLE}` in the shell, for a container"
        f" `--ulimit nofile={COMFORTABLE}`, in a systemd unit `LimitNOFILE={COMFORTABLE}`."
    )


def summary(lost: Outcome, kept: Outcome) -> str:
    """What happened, in one line."""
    if kept.data != PRINTED:
        return f"drain() got {len(kept.data)} of {len(PRINTED)} bytes: please report this as a bug."
    if lost.data == PRINTED:
        return f"Nothing was lost: on this platform select() takes descriptor {lost.fd}."
    return (
        f"select() refused descriptor {lost.fd}, the loop took the error for the end of the output, and"
        f" {len(PRINTED) - len(lost.data)} bytes are gone without a word; drain() got them all."
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def main(_options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        before = with_select()
        try:
            stack.enter_context(many_descriptors())
        except OSError as error:
            print(advice(error), file=sys.stderr)
            return 2
        lost, kept = with_select(), with_drain()
    print(
        f"A command prints {len(PRINTED)} bytes and exits with {STATUS}.",
        "",
        f"  {'collected by':16}{'descriptor':>12}{'bytes':>9}{'exit status':>13}   ended by",
        before,
        "",
        f"The same, while this process holds {HELD} more descriptors:",
        "",
        lost,
        kept,
        "",
        summary(lost, kept),
        sep="\n",
    )
    return 0 if (kept.data, kept.status) == (PRINTED, STATUS) else 1
