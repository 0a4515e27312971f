"""What this build and this machine can do: for bug reports."""

from __future__ import annotations

import platform
import resource
import sys
from importlib import metadata
from typing import Any

from fdwait._core import ffi, lib


def info() -> dict[str, Any]:
    """Versions, backends (best first), optional kernel features found here, and limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "fdwait": metadata.version("fdwait"),
        "python": f"{sys.implementation.name} {platform.python_version()}",
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "backends": _backends(),
        "features": _features(),
        "limits": {"descriptors_soft": soft, "descriptors_hard": hard},
    }


def _backends() -> list[str]:
    names: list[str] = []
    while (name := lib.fdw_backend_name(len(names))) != ffi.NULL:
        names.append(ffi.string(name).decode())
    return names


def _features() -> dict[str, bool]:
    features: dict[str, bool] = {}
    found = ffi.new("int *")
    while (name := lib.fdw_feature(len(features), found)) != ffi.NULL:
        features[ffi.string(name).decode()] = bool(found[0])
    return features
