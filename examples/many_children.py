"""Follow many commands at once with select(), also when their pipes have numbers above 1023.

python examples/many_children.py [HOW_MANY]
"""

import os
import subprocess
import sys

import fdwait


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    command = "read line; echo got $line"
    children = [
        subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        for _ in range(count)
    ]
    for number, child in enumerate(children):
        assert child.stdin is not None
        child.stdin.write(b"%d\n" % number)

    open_outputs = {child.stdout: child for child in children}
    lines = []
    while open_outputs:
        ready, _, _ = fdwait.select(list(open_outputs), [], [], 10.0)
        if not ready:
            raise TimeoutError(f"{len(open_outputs)} commands have been silent for 10 s")
        for output in ready:
            if data := os.read(output.fileno(), 65536):
                lines.append(data)
            else:
                with open_outputs.pop(output):  # closes its pipes and waits for it
                    pass
    highest = max(lines, key=lambda line: int(line.split()[1]))
    print(len(lines), "lines, the highest:", highest.decode().strip())


if __name__ == "__main__":
    main()
