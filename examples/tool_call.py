"""A command whose output somebody else will read: bounded in time and in size, and honest about both.

python examples/tool_call.py
"""

import json
import subprocess
from typing import Any

import fdwait


def tool_call(command: str, *, seconds: float = 10.0) -> dict[str, Any]:
    """The result as JSON can carry it. Whatever was cut off is told in it."""
    keep = fdwait.Window(head=40, tail=20)
    try:
        done = fdwait.run(
            command, shell=True, timeout=seconds, keep=keep, start_new_session=True, stderr=subprocess.STDOUT
        )
    except subprocess.TimeoutExpired as late:
        done = late.completed
    return done.to_dict()


for command in ("seq 1 100000", "echo working; sleep 60"):
    result = json.loads(json.dumps(tool_call(command, seconds=1.0)))
    print(f"{command}: {result['end']}, status {result['returncode']}, {result['stdout_elided']} bytes left out")
