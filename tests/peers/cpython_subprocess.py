"""CPython's own tests of subprocess.run(), run over fdwait.run. `python tests/peers/cpython_subprocess.py`

All of test.test_subprocess that calls run(), also through check_output() and getoutput():

  as it is; with subprocess.run replaced; and that again with every descriptor above 1023. The last run is also
  made with the standard library's run, and must fail there, where its Popen waits with select(): that proves that
  the descriptors really are above 1023, and that the replacement is what is called.

What the tests need is said in cpython.py. One waits for three seconds twice, and one for six.

Prints a table; the exit status is 0 only if exactly those tests fail that are listed here, and no child is left.
"""

import inspect
import re
import sys
import unittest

from cpython import Peer, Run

CALLS_RUN = re.compile(r"\bsubprocess\.(run|check_output|getoutput|getstatusoutput)\b|\bself\.run_python\(")

# What fdwait.run does otherwise than subprocess.run, and means to. That it captures both outputs unless told
# otherwise, no test minds.
DIFFERENCES = {
    "MiscTests.test_run_keyboardinterrupt_no_kill": "interrupts a mocked Popen._communicate(), which is not called",
}
USES_SELECT = "its Popen waits with select()"
MUST_FAIL_HIGH = {
    f"ProcessTestCaseNoPoll.test_check_output_{name}": USES_SELECT
    for name in (
        "input_arg",
        "input_none",
        "input_none_encoding_errors",
        "input_none_text",
        "input_none_universal_newlines",
        "timeout",
    )
}
RUNS = (
    Run("test.test_subprocess"),
    Run("test.test_subprocess", replaced=True, must_fail=DIFFERENCES),
    Run("test.test_subprocess", replaced=True, high=True, must_fail=DIFFERENCES),
    Run("test.test_subprocess", high=True, must_fail=MUST_FAIL_HIGH),
)


def calls_run(test: unittest.TestCase) -> bool:
    return bool(CALLS_RUN.search(inspect.getsource(getattr(type(test), test._testMethodName))))


if __name__ == "__main__":
    sys.exit(Peer("subprocess", "run", RUNS, calls_run).main())
