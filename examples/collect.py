"""Run a command, collect its output, and say honestly whether that is all of it.

python examples/collect.py COMMAND [ARGUMENT ...]
"""

import subprocess
import sys

import fdwait


def main() -> int:
    command = sys.argv[1:] or ["sh", "-c", "echo hello; sleep 5 & exit 3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        drained = fdwait.drain(
            process.stdout,
            process=process,
            timeout=10,
            keep=fdwait.Window(head=64 << 10, tail=192 << 10),
        )
        if drained.end is fdwait.End.TIMEOUT:
            process.kill()
    sys.stdout.buffer.write(drained.data)
    sys.stdout.flush()
    whole = drained.end is fdwait.End.EOF and not drained.elided
    print(f"[{drained.total} bytes, {'all of it' if whole else drained!r}]", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
