"""What README.md, docs/ and examples/ show is run, and prints what is printed there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import STARVED

pytestmark = pytest.mark.skipif(STARVED, reason="much of what is shown starts commands, which needs descriptors")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOOL_CALL = """\
seq 1 100000: EOF, status 0, 588835 bytes left out
echo working; sleep 60: TIMEOUT, status -9, 0 bytes left out
"""
EXAMPLES = {  # exit status, output, errors
    "collect.py": (3, "hello\n", "[6 bytes, <Drained EXITED: 6 bytes>]\n"),
    "many_children.py": (0, "20 lines, the highest: got 19\n", ""),
    "stop_from_thread.py": (0, "End.STOPPED with both ends kept: True all accounted for: True\n", ""),
    "tool_call.py": (0, TOOL_CALL, ""),
}

# A block of Python with the block of its output right after it.
SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown() -> list[object]:
    return [
        pytest.param(code, output, id=f"{page.name}-{i}")
        for page in PAGES
        for i, (code, output) in enumerate(SHOWN.findall(page.read_text(encoding="utf-8")))
    ]


def outcome(command: list[str], directory: Path) -> tuple[int, str, str]:
    """Exit status, output and errors. Not through pipes: some leave a process behind that would hold them."""
    with (directory / "out").open("w+b") as out, (directory / "err").open("w+b") as err:
        done = subprocess.run(command, cwd=directory, stdout=out, stderr=err, timeout=50, check=False)
        out.seek(0)
        err.seek(0)
        return done.returncode, out.read().decode(), err.read().decode()


@pytest.mark.parametrize(("code", "output"), shown())
def test_shown_code_prints_what_is_shown(code: str, output: str, tmp_path: Path) -> None:
    assert outcome([sys.executable, "-X", "utf8", "-c", code], tmp_path) == (0, output, "")


def test_no_shown_code_is_left_out() -> None:
    blocks = sum(page.read_text(encoding="utf-8").count("```python\n") for page in PAGES)
    assert len(shown()) == blocks >= 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    assert outcome(command, tmp_path) == EXAMPLES[name]


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


def test_the_two_command_lines() -> None:
    """Each is one line from a fresh clone; what they do is tested where there is a fresh clone."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^```sh\n(.*)\n```$", page, re.MULTILINE)
    assert [shlex.split(line)[-3:] for line in lines] == [["-m", "fdwait", "demo"], ["-m", "pytest", "tests"]]


def test_links_lead_somewhere() -> None:
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
