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

    from fdwait._pump import End

NAME = "run"
HELP = "run a command, pass its output through, and say why it ended and whether that was all"

NOT_FOUND: Final = 127  # what shells exit with: POSIX, Shell Command Language 2.8.2
NOT_RUN: Final = 126
NO_STATUS: Final = 255
STREAMS: Final = {"stdout": 1, "stderr": 2}
GIVEN_UP_AFTER: Final = 0.2  # seconds in which whoever reads our output takes nothing of it, when we ought to end


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
    with _signals_end_it():
        try:
            passage = _Passage(command, command.run(options.timeout), must_end=options.timeout is not None)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, OSError, ValueError, MemoryError) as error:
            if hasattr(error, "completed"):
                passage = _Passage(command, error.completed, must_end=True)
            elif isinstance(error, KeyboardInterrupt):
                raise
            else:  # ValueError: a NUL in a word, or --timeout nan
                return _refuse(str(error), NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)
        passage.write_rest()
    report = _as_json if options.json else _as_line
    _say(passage.line_break() + report(passage))
    return _status(passage.completed)


def _size(text: str) -> int:
    size = int(text)
    if size < 0:
        raise argparse.ArgumentTypeError(f"a number of bytes cannot be negative: {size}")
    return size


def _refuse(why: str, status: int) -> int:
    _say(f"fdwait run: {why}")
    return status


def _say(line: str) -> None:
    """With stderr closed sys.stderr is None, which print() takes for stdout."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # nobody may be left to read it
            print(line, file=sys.stderr, flush=True)


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


class _Passage:
    """What became of the command's output on its way through."""

    def __init__(self, command: Command, completed: Completed, *, must_end: bool) -> None:
        self.completed = completed
        self._must_end = must_end
        self.totals = command.totals
        self.errors = dict(command.passing_errors)
        self.written = dict(command.passed_on)
        self._last = dict(command.last_passed_on)

    def write_rest(self) -> None:
        """Of each stream what was not passed on as it came: the marker and the tail, mostly."""
        for name, fd in STREAMS.items():
            rest = getattr(self.completed, name)
            if self.errors[name] is None and rest:
                self.errors[name] = self._write(name, fd, rest)

    def _write(self, name: str, fd: int, rest: bytes) -> str | None:
        """What went wrong, if anything."""
        taken = 0
        try:
            while taken < len(rest):
                taken += self._write_some(fd, rest[taken:])
        except TimeoutError:
            return "nobody reads it"
        except KeyboardInterrupt as error:
            taken += getattr(error, "taken", 0)
            self._must_end = True
            return "interrupted"
        except OSError as error:
            taken += getattr(error, "taken", 0)
            return error.strerror
        finally:
            self.written[name] += taken
            if taken:
                self._last[name] = rest[taken - 1]
        return None

    def _write_some(self, fd: int, rest: bytes) -> int:
        """As long as its reader takes something, the rest is written."""
        try:
            return feed(fd, rest, timeout=GIVEN_UP_AFTER if self._must_end else None)
        except TimeoutError as error:
            taken: int = error.taken  # type: ignore[attr-defined]
            if not taken:
                raise
            return taken

    def line_break(self) -> str:
        return "\n" if self._last["stderr"] not in {-1, ord("\n")} else ""

    def end(self) -> str | None:
        """What did not reach its reader has no end that could be told."""
        end = self.completed.end
        return None if any(self.errors.values()) or not end else end.name

    def elided(self, name: str) -> int:
        elided: int = getattr(self.completed, f"{name}_elided")
        return elided

    def stream_end(self, name: str) -> str | None:
        end: End | None = getattr(self.completed, f"{name}_end")
        return end.name if end else None


def _as_line(passage: _Passage) -> str:
    code = cast("int | None", passage.completed.returncode)
    if code is None:
        status = "exit status not known"
    elif code < 0:
        status = f"ended by signal {-code} ({signal.strsignal(-code)})"
    else:
        status = f"exit status {code}"
    streams = [_stream_as_text(name, passage) for name in STREAMS]
    return f"fdwait: {passage.end() or 'output not all passed on'}, {status}; {', '.join(streams)}"


def _stream_as_text(name: str, passage: _Passage) -> str:
    text = f"{name} {passage.totals[name]} bytes"
    if elided := passage.elided(name):
        text += f" ({elided} left out)"
    if error := passage.errors[name]:
        text += f" ({error}, {passage.written[name]} written)"
    return text


def _as_json(passage: _Passage) -> str:
    report: dict[str, Any] = {
        "args": passage.completed.args,
        "returncode": passage.completed.returncode,
        "end": passage.end(),
    }
    for name in STREAMS:
        report[name] = {
            "end": passage.stream_end(name),
            "total": passage.totals[name],
            "elided": passage.elided(name),
            "written": passage.written[name],
            "error": passage.errors[name],
        }
    return json.dumps(report)


def _status(completed: Completed) -> int:
    code = cast("int | None", completed.returncode)
    if code is None:
        return NO_STATUS
    return 128 - code if code < 0 else code
