"""Running a command: what goes in, what comes out, and how it ended, none of which can hang or get lost."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import locale
import os
import signal
import subprocess
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final, cast

from fdwait._core import deadline_after, failure
from fdwait._drain import LINGER, LINGER_CAP, printable
from fdwait._feed import as_bytes
from fdwait._pump import DEADLINE, NEW_PIPE, READY, STOPPED, Collected, End, Feed, Pump, Source, check_keep, seconds
from fdwait._starts import Child, begin_start, end_start, hold_handlers, release_handlers

if TYPE_CHECKING:
    from collections.abc import Callable

    from fdwait._retention import Window
    from fdwait._stop import Stop

INTERRUPT_GRACE: Final = 0.1  # seconds that a child has to end by the Ctrl-C that it may have got, too
NOT_TAKEN: Final = {0, errno.EPIPE, errno.ECONNRESET}  # a command may close its stdin early
KILL_PATIENCE: Final = 1.0  # seconds that the kernel has to end a killed child
FORCED: Final = {DEADLINE: End.TIMEOUT, STOPPED: End.STOPPED}  # the end of what was open at the kill


class Completed(subprocess.CompletedProcess[Any]):
    """A command that is over: subprocess.CompletedProcess, and how much of its input and output that is.

    ``returncode`` is None where somebody else reaped the process, or it could not be killed.
    """

    end: End | None
    """The worse of ``stdout_end`` and ``stderr_end``, in the order of End; None after an error.

    Only EOF means complete."""
    stdout_end: End | None
    """Why stdout ended; None where it was not captured, or after an error."""
    stderr_end: End | None
    stdin_taken: int | None
    """Bytes of the input that were read, by the command or whom it gave its stdin to; None without input."""
    stdout_elided: int
    """Bytes of stdout that were left out by a Window."""
    stderr_elided: int

    def __init__(
        self,
        args: Any,
        returncode: int | None,
        stdout: Any = None,
        stderr: Any = None,
        *,
        end: End | None = End.EOF,
        stdout_end: End | None = None,
        stderr_end: End | None = None,
        stdin_taken: int | None = None,
        stdout_elided: int = 0,
        stderr_elided: int = 0,
    ) -> None:
        super().__init__(args, cast("int", returncode), stdout, stderr)
        self.end = end
        self.stdout_end = stdout_end
        self.stderr_end = stderr_end
        self.stdin_taken = stdin_taken
        self.stdout_elided = stdout_elided
        self.stderr_elided = stderr_elided

    def __repr__(self) -> str:
        end = self.end.name if self.end else "error"
        fields = [f"args={self.args!r}", f"returncode={self.returncode!r}", f"end={end}"]
        for name in ("stdout", "stderr"):
            if getattr(self, name) is not None:
                fields.append(f"{name}={getattr(self, name)!r}")
            if elided := getattr(self, f"{name}_elided"):
                fields.append(f"{name}_elided={elided}")
        if self.stdin_taken is not None:
            fields.append(f"stdin_taken={self.stdin_taken}")
        return f"Completed({', '.join(fields)})"

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them: ends by their names, bytes as UTF-8 with ``\\xNN`` for what is none."""
        return {name: _plain(value) for name, value in vars(self).items()}


def run(
    args: Any,
    *,
    input: Any = None,  # noqa: A002 -- as in subprocess.run()
    timeout: float | None = None,
    check: bool = False,
    stdout: Any = PIPE,
    stderr: Any = PIPE,
    keep: Window | None = None,
    linger: float = LINGER,
    linger_cap: float = LINGER_CAP,
    stop: Stop | None = None,
    text: bool | None = None,
    encoding: str | None = None,
    errors: str | None = None,
    **popen_kwargs: Any,
) -> Completed:
    """subprocess.run() for programs that must not hang and must not lie.

    Arguments, defaults and exceptions are those of ``subprocess.run()``, but both outputs are captured unless
    *stdout* or *stderr* say otherwise. All three streams are moved by one pump in the calling thread, with the GIL
    released. It comes back when the command is over, although its background children may hold the pipes: see
    ``drain()`` for *linger*, *linger_cap* and *keep*, which is for each stream.

    *timeout* is the total in seconds, for input, output and exit. When it is up, or *stop* is set, the command is
    killed (its whole process group with ``start_new_session=True`` or ``process_group=0``), what it has still
    written is taken without waiting, and it is reaped. A time-out raises TimeoutExpired with the output so far; a
    stopped command is returned with ``end`` STOPPED.

    A command that closes its stdin early is no error: ``stdin_taken`` says how much it read. An exit status that
    somebody else reaped is None, and with *check* OSError(ECHILD).

    Every exception that is raised once the command runs has what there was as ``exc.completed``; UnicodeDecodeError has
    bytes in it. KeyboardInterrupt leaves the command a tenth of a second to end by itself, then it is killed.
    OSError(EMFILE) and whatever else Popen raises come before it runs, and leave nothing behind.
    """
    command = Command(
        args,
        input=input,
        stdout=stdout,
        stderr=stderr,
        keep=keep,
        stop=stop,
        linger=(seconds(linger, "linger"), seconds(linger_cap, "linger_cap")),
        text={"text": text, "encoding": encoding, "errors": errors},
        popen_kwargs=popen_kwargs,
    )
    completed = command.run(timeout)
    if check:
        check_status(completed)
    return completed


def check_status(completed: Completed) -> None:
    """Raise what *check* asks for."""
    error: Exception | None = None
    if completed.returncode is None:
        why = "somebody else reaped it, or it could not be killed"
        error = OSError(errno.ECHILD, f"the exit status of {completed.args!r:.100} is not known: {why}")
    elif completed.returncode:
        error = subprocess.CalledProcessError(completed.returncode, completed.args, completed.stdout, completed.stderr)
    if error:
        error.completed = completed  # type: ignore[attr-defined]
        raise error


class Command:
    """One call of run(): its pump, its process, and what came of it."""

    def __init__(
        self,
        args: Any,
        *,
        stdout: Any = PIPE,
        stderr: Any = PIPE,
        keep: Window | None = None,
        linger: tuple[float, float] = (LINGER, LINGER_CAP),
        input: Any = None,  # noqa: A002
        stop: Stop | None = None,
        text: dict[str, Any] | None = None,
        popen_kwargs: dict[str, Any] | None = None,
        pass_on: dict[str, int] | None = None,
    ) -> None:
        """*pass_on* says to which descriptor "stdout" and "stderr" go as they come."""
        self._popen_kwargs = popen_kwargs or {}
        self._text = text or {"text": None, "encoding": None, "errors": None}
        self._codec = _codec(self._text, self._popen_kwargs)
        check_keep(keep)
        if self._popen_kwargs.pop("capture_output", False) and (stdout, stderr) != (PIPE, PIPE):
            raise ValueError("stdout and stderr arguments may not be used with capture_output.")
        if input is not None and self._popen_kwargs.get("stdin") is not None:
            raise ValueError("stdin and input arguments may not both be used.")
        self._args = args
        self._input = None if input is None else self._encoded(input)
        self._counts_input = input is not None
        if self._popen_kwargs.get("stdin") == PIPE:
            self._input = b""  # it ends at once
        self._wanted = {"stdout": stdout, "stderr": stderr}
        self._keep = keep
        self._linger = linger
        self._pass_on = pass_on or {}

        self._pump = Pump(stop)
        self._process: Child | None = None
        self._feed: Feed | None = None
        self._sources: dict[str, Source] = {}
        self._passed: dict[str, Feed] = {}
        self._outcome = READY
        self._is_watched = self._is_over = False
        self._cut: set[str] = set()  # the streams that were open when it was killed
        self._returncode: int | None = None
        # For whoever passes the streams on:
        self.totals: dict[str, int] = {}
        self.passed_on: dict[str, int] = {}
        self.last_passed_on: dict[str, int] = {}
        self.passing_errors: dict[str, str | None] = dict.fromkeys(("stdout", "stderr"))

    def run(self, timeout: float | None) -> Completed:
        deadline = deadline_after(timeout)
        try:
            self._start()
            self._outcome = self._pump.run(deadline)
            self._end()
            completed = self._completed()
        except BaseException as exc:  # noqa: BLE001 -- an interrupt may come anywhere, also when the result was there
            error = exc
            while True:
                try:
                    hold_handlers()
                    break
                except BaseException as another:  # noqa: BLE001 -- one was on its way
                    error = another
            self._abort(error)
            raise error  # noqa: B904
        finally:
            self._pump.close()
            if isinstance(self._input, memoryview):
                self._input.release()
        if self._outcome == DEADLINE:
            raise self._expired(completed, timeout)
        return completed

    # ---- start ----

    def _start(self) -> None:
        self._pump.open()
        try:
            begin_start()
            ends = self._open_pipes()
            # It is ours before it has a child: an exception in the middle of the start finds it.
            self._process = process = Child.__new__(Child)
            process.__init__(self._args, **self._popen_kwargs, **self._text, **ends)  # type: ignore[misc]
            self._watch()
        finally:
            end_start()

    def _open_pipes(self) -> dict[str, Any]:
        """What the child gets as its standard streams."""
        ends: dict[str, Any] = {"stdin": self._popen_kwargs.pop("stdin", None), **self._wanted}
        if self._input is not None:
            self._feed = self._pump.feed(NEW_PIPE, self._input)
            ends["stdin"] = self._feed.peer
        for name, wanted in self._wanted.items():
            if wanted == PIPE:
                self._sources[name] = source = self._pump.source(NEW_PIPE, self._keep)
                ends[name] = source.peer
        self._set_pipe_size()
        for name, fd in self._pass_on.items():
            self._passed[name] = self._pump.pass_on(self._sources[name], fd)
        return ends

    def _set_pipe_size(self) -> None:
        size = self._popen_kwargs.get("pipesize", -1)
        if size > 0 and hasattr(fcntl, "F_SETPIPE_SZ"):
            streams: list[Feed | Source] = [*self._sources.values(), *([self._feed] if self._feed else [])]
            for stream in streams:
                fcntl.fcntl(stream.peer, fcntl.F_SETPIPE_SZ, size)

    def _watch(self) -> None:
        assert self._process
        self._pump.started()
        self._pump.watch(self._process.pid, *self._linger, required=True)
        self._is_watched = True

    # ---- end ----

    def _end(self) -> None:
        """The command is over, or is ended now."""
        if self._outcome == READY:
            self._reap()
        else:
            self._kill()
        for name, passed in self._passed.items():
            self.passing_errors[name] = os.strerror(passed.error) if passed.error else None
        for name, source in self._sources.items():
            if self.passing_errors[name] is None:
                source.check()
        if self._feed and self._feed.error not in NOT_TAKEN:
            raise failure(-self._feed.error, "feeding the command", None)

    def _kill(self) -> None:
        self._cut |= {name for name, source in self._sources.items() if source.end in {None, End.TIMEOUT, End.STOPPED}}
        self._pump.finish()
        if not self._is_watched:
            self._kill_blindly()
            return
        self._pump.signal(signal.SIGKILL, group=self._leads_a_group())
        if self._pump.run(deadline_after(KILL_PATIENCE)) == READY:
            self._reap()

    def _kill_blindly(self) -> None:
        """There was no memory to watch it."""
        assert self._process
        os.kill(self._process.pid, signal.SIGKILL)
        self._reap()
        self._pump.run(deadline_after(0))

    def _leads_a_group(self) -> bool:
        return bool(self._popen_kwargs.get("start_new_session")) or self._popen_kwargs.get("process_group") == 0

    def _reap(self) -> None:
        """Popen would make a status of 0 of one that somebody else has taken."""
        assert self._process
        try:
            _, status = os.waitpid(self._process.pid, 0)  # it is gone: this does not wait
            self._returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            pass
        self._is_over = True
        self._process.returncode = self._returncode or 0  # the Popen has nothing left to do

    def _abort(self, error: BaseException) -> None:
        """End what was started, with signal handlers held, and let the exception carry what there is."""
        try:
            if self._has_started():
                self._abandon(is_interrupt=isinstance(error, KeyboardInterrupt))
                error.completed = self._completed(raw=True)  # type: ignore[attr-defined]
        finally:
            try:
                release_handlers()
            except KeyboardInterrupt:  # pressed twice
                if not isinstance(error, KeyboardInterrupt):
                    raise

    def _has_started(self) -> bool:
        process = self._process
        if not process or process.pid is None:
            return False
        if self._is_watched:
            return True
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # it could not be executed, and Popen has reaped it
            return False
        return True

    def _abandon(self, *, is_interrupt: bool) -> None:
        if not self._is_over:
            if not self._is_watched:
                with contextlib.suppress(OSError, MemoryError):
                    self._watch()
            if is_interrupt and self._is_watched and self._pump.run(deadline_after(INTERRUPT_GRACE)) == READY:
                self._reap()
            if not self._is_over:
                self._kill()
        if is_interrupt:
            self._outcome = STOPPED

    # ---- result ----

    def _completed(self, *, raw: bool = False) -> Completed:
        """*raw*: bytes also in text mode, and without what there is no memory for."""
        forced = FORCED.get(self._outcome)
        fields: dict[str, Any] = {}
        ends: list[End | None] = [forced or End.EOF]
        for name, source in self._sources.items():
            kept = _collected(source) if raw else source.collect()
            end = forced if name in self._cut else kept.end
            ends.append(end)
            fields[name] = kept.data() if raw or not self._codec else kept.text(self._decoder(end))
            fields[f"{name}_end"] = end
            fields[f"{name}_elided"] = kept.elided
            self.totals[name] = kept.total
        for name, passed in self._passed.items():
            self.passed_on[name], self.last_passed_on[name] = passed.taken, passed.last
        taken = self._feed.read_by_child if self._feed and self._counts_input else None
        return Completed(self._args, self._returncode, end=_worst(ends), stdin_taken=taken, **fields)

    def _encoded(self, given: Any) -> Any:
        if self._codec is None:
            if given == "":
                return b""
            if isinstance(given, str):
                raise TypeError("input is bytes here: pass text=True, or an encoding, for str")
            return as_bytes(given)
        if not isinstance(given, str):
            raise TypeError(f"input is str in text mode, not {type(given).__name__}")
        return given.encode(*self._codec) if given else b""  # without the mark that some encodings begin with

    def _decoder(self, end: End | None) -> Callable[[bytes], str]:
        """Text as subprocess.run() makes it. What was cut short may end within a character, and says so."""
        assert self._codec
        encoding, errors = self._codec
        if (end is not End.EOF or self._outcome != READY) and errors == "strict":
            errors = "backslashreplace"
        return lambda data: data.decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")

    def _expired(self, completed: Completed, timeout: float | None) -> subprocess.TimeoutExpired:
        error = subprocess.TimeoutExpired(
            self._args, cast("float", timeout), output=completed.stdout, stderr=completed.stderr
        )
        if not self._is_over:
            error.add_note("The process could not be killed and is still there.")
        error.completed = completed  # type: ignore[attr-defined]
        return error


def _worst(ends: list[End | None]) -> End | None:
    """The last one in the order of End; None, an error, is worse than all."""
    known = [end for end in ends if end]
    return max(known, key=lambda end: end.value) if len(known) == len(ends) else None


def _collected(source: Source) -> Collected:
    try:
        return source.collect()
    except MemoryError:
        return source.uncollected()


def _codec(text: dict[str, Any], popen_kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """Encoding and errors in text mode, which is told as by Popen."""
    encoding, errors = text["encoding"], text["errors"]
    if not (encoding or errors or text["text"] or popen_kwargs.get("universal_newlines")):
        return None
    if encoding in {None, "locale"}:
        encoding = locale.getpreferredencoding(do_setlocale=False)
    codec = encoding, errors or "strict"
    codecs.lookup(codec[0])
    codecs.lookup_error(codec[1])
    return codec


def _plain(value: Any) -> Any:
    if isinstance(value, End):
        return value.name
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
