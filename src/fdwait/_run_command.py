"""`python -m fdwait run`: run() from the shell."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, cast

from fdwait._feed import feed
from fdwait._retention import Window
from fdwait._run import Command, Completed

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "run"
HELP = "run a command, pass its output through, and say why it ended and whether that was all"

NOT_FOUND: Final = 127  # what shells exit with: POSIX, Shell Command Language 2.8.2
NOT_RUN: Final = 126
NO_STATUS: Final = 255
STREAMS: Final = {"stdout": 1, "stderr": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [--timeout S] [--keep-head N --keep-tail N] [--json] -- COMMAND ..."
    parser.epilog = (
        "The last line on stderr is ours. The exit status is that of the command, 128 + N where signal N ended it;"
        f" {NOT_FOUND} and {NOT_RUN} where it could not be started."
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="kill it after S seconds")
    parser.add_argument(
        "--keep-head", type=_size, metavar="N", help="of each stream, pass the first N bytes through ..."
    )
    parser.add_argument("--keep-tail", type=_size, metavar="N", help="... and the last N, when it has ended")
    parser.add_argument("--json", action="store_true", help="end with a JSON object instead of a line")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(options: argparse.Namespace) -> int:
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        return _refuse("there is no command", NOT_RUN)
    if (options.keep_head is None) != (options.keep_tail is None):
        return _refuse("--keep-head and --keep-tail go together", NOT_RUN)
    keep = None if options.keep_head is None else Window(options.keep_head, options.keep_tail)
    command = Command(words, keep=keep, pass_on=STREAMS)
    try:
        with _signals_end_it():
            completed = command.run(options.timeout)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as ended:
        if not hasattr(ended, "completed"):
            raise
        completed = ended.completed
    except (OSError, ValueError) as error:  # ValueError: a NUL in a word, or --timeout nan
        return _refuse(str(error), NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)
    for name, fd in STREAMS.items():
        if command.errors[name] is None:
            command.errors[name] = _write_rest(fd, getattr(completed, name))
    report = _as_json if options.json else _as_line
    with contextlib.suppress(OSError):  # nobody may be left to read it
        print(report(command, completed), file=sys.stderr, flush=True)
    return _status(completed)


def _size(text: str) -> int:
    size = int(text)
    if size < 0:
        raise argparse.ArgumentTypeError(f"a number of bytes cannot be negative: {size}")
    return size


def _refuse(why: str, status: int) -> int:
    print(f"fdwait run: {why}", file=sys.stderr)
    return status


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """What would end us ends the command first, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    mine = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in mine:  # nohup has SIGHUP ignored
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def _write_rest(fd: int, rest: bytes) -> str | None:
    """The marker and the tail; what went wrong, if anything."""
    try:
        feed(fd, rest)
    except OSError as error:
        return error.strerror
    return None


def _as_line(command: Command, completed: Completed) -> str:
    streams = [_stream_as_text(name, command, completed) for name in STREAMS]
    code = completed.returncode
    if code is None:
        status = "exit status not known"
    elif code < 0:
        status = f"ended by signal {-code} ({signal.strsignal(-code)})"
    else:
        status = f"exit status {code}"
    return f"fdwait: {_end(command, completed) or 'output not all passed on'}, {status}; {', '.join(streams)}"


def _end(command: Command, completed: Completed) -> str | None:
    """What did not reach its reader has no end that could be told."""
    return None if any(command.errors.values()) else completed.end.name


def _stream_as_text(name: str, command: Command, completed: Completed) -> str:
    text = f"{name} {command.totals[name]} bytes"
    if elided := getattr(completed, f"{name}_elided"):
        text += f" ({elided} left out)"
    if error := command.errors[name]:
        text += f" ({error})"
    return text


def _as_json(command: Command, completed: Completed) -> str:
    report: dict[str, Any] = {
        "args": completed.args,
        "returncode": completed.returncode,
        "end": _end(command, completed),
    }
    for name in STREAMS:
        end = getattr(completed, f"{name}_end")
        report[name] = {
            "end": end.name if end else None,
            "total": command.totals[name],
            "elided": getattr(completed, f"{name}_elided"),
            "error": command.errors[name],
        }
    return json.dumps(report)


def _status(completed: Completed) -> int:
    code = cast("int | None", completed.returncode)
    if code is None:
        return NO_STATUS
    return 128 - code if code < 0 else code
