"""Builds fdwait._native: the declarations of csrc/fdwait.h over the C files of this platform.

Environment, for developers and CI: FDWAIT_CFLAGS and FDWAIT_LDFLAGS are added to the compiler's and the
linker's arguments; FDWAIT_WITH_KQUEUE=1 builds the kqueue backend on Linux, on libkqueue.
"""

import os
import shlex
import sys
from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).parent / "csrc"

LINUX = sys.platform == "linux"
WITH_KQUEUE = not LINUX or os.environ.get("FDWAIT_WITH_KQUEUE") == "1"

NAMES = ["channel", "child", "clock", "feed", "handlers", "job", "poll", "poller", "process", "pump"]
NAMES += ["select", "sink", "source", "starts", "stop", "waiter"]
NAMES += ["os_linux"] if LINUX else ["os_bsd"]
NAMES += ["kqueue"] if WITH_KQUEUE else ["epoll"]

macros: list[tuple[str, str | None]] = [("_GNU_SOURCE", None)]
libraries = ["m"]
if LINUX and WITH_KQUEUE:
    macros.append(("FDW_WITH_KQUEUE", None))
    libraries.append("kqueue")


def declarations() -> str:
    header = (CSRC / "fdwait.h").read_text(encoding="utf-8")
    return header.split("/* cdef: begin */")[1].split("/* cdef: end */")[0]


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "fdwait._native",
    '#include "fdwait.h"',
    sources=[f"csrc/{name}.c" for name in sorted(NAMES)],
    include_dirs=["csrc"],
    define_macros=macros,
    libraries=libraries,
    extra_compile_args=["-std=c11", "-fvisibility=hidden", *shlex.split(os.environ.get("FDWAIT_CFLAGS", ""))],
    extra_link_args=shlex.split(os.environ.get("FDWAIT_LDFLAGS", "")),
)
