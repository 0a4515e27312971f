"""info(): what a bug report needs."""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys

from support import BACKEND, LINUX, descriptors

import fdwait


def test_it_can_be_written_down() -> None:
    assert json.loads(json.dumps(fdwait.info())) == fdwait.info()


def test_versions() -> None:
    text = json.dumps(fdwait.info())
    assert importlib.metadata.version("fdwait") in text
    assert sys.version.split()[0] in text


def test_backends() -> None:
    backends = fdwait.info()["backends"]
    assert {"poll", "select"} < set(backends)
    assert ("epoll" in backends) is LINUX or BACKEND == "kqueue"
    with fdwait.FdWaiter(0) as waiter:
        assert waiter.backend in (*backends, "always")


def test_limits() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = json.dumps(fdwait.info())
    assert str(soft) in text
    assert str(hard) in text


def test_it_opens_nothing() -> None:
    before = descriptors()
    fdwait.info()
    assert descriptors() == before


def test_everything_public_is_exported() -> None:
    for name in fdwait.__all__:
        assert getattr(fdwait, name).__doc__ or name in ("READ", "WRITE", "MARKER")
    namespace: dict[str, object] = {}
    exec("from fdwait import *", namespace)
    assert set(fdwait.__all__) <= set(namespace)
