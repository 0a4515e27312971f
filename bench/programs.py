"""The C programs beside this file, compiled when they are first needed."""

import atexit
import functools
import os
import shlex
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def _directory() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="fdwait-bench-")
    atexit.register(directory.cleanup)
    return Path(directory.name)


@functools.cache
def program(name: str) -> str:
    """The path of the program compiled from `name`.c."""
    source = Path(__file__).with_name(f"{name}.c")
    target = _directory() / name
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-O2", "-Wall", "-Wextra", "-o", target, source], check=True)
    return str(target)


def writer(size: int) -> "subprocess.Popen[bytes]":
    """A process that writes `size` bytes to its stdout as fast as they are read."""
    return subprocess.Popen([program("writer"), str(size)], stdout=subprocess.PIPE, bufsize=0)


def c_reader(mode: str, size: int) -> float:
    """The seconds that the C reader needs for `size` bytes; mode is "discard" or "keep"."""
    reader = program("reader")
    with writer(size) as source:
        done = subprocess.run([reader, mode], stdin=source.stdout, capture_output=True, check=True)
    total, nanoseconds = map(int, done.stdout.split())
    if total != size:
        raise RuntimeError(f"the C reader got {total} of {size} bytes")
    return nanoseconds / 1e9
