"""Drain an endless command in a thread, and end that from outside without losing what it had."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import fdwait


def main() -> None:
    stop = fdwait.Stop()
    with ThreadPoolExecutor() as pool, subprocess.Popen(["yes"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        keep = fdwait.Window(head=20, tail=20)
        future = pool.submit(fdwait.drain, process.stdout, process=process, keep=keep, stop=stop)
        threading.Timer(0.5, stop.set).start()
        drained = future.result()
        process.kill()
    print(drained.end, "with both ends kept:", drained.kept == 40, "all accounted for:", end=" ")
    print(drained.total == drained.kept + drained.elided)


if __name__ == "__main__":
    main()
