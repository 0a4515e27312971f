"""CPython's own tests of the select module, run over fdwait.select. `python tests/peers/cpython_select.py`

  test.test_select   as it is; with select.select replaced; and that again with every descriptor above 1023.
                     The last run is also made with the standard library's select, and must fail there: that
                     proves that the descriptors really are above 1023.
  test.test_poll,    as they are, and with select.select replaced: the rest of the module must not notice.
  test.test_epoll

What they need is said in cpython.py. test_poll2 of test_poll sleeps for ten seconds. test_epoll is skipped where
there is no epoll.

Prints a table; the exit status is 0 only if everything went as it must.
"""

import sys

from cpython import Peer, Run

# These three hand a descriptor to select(), the other three of test_select do not.
MUST_FAIL_HIGH = {
    "SelectTestCase.test_errno": "the number of a closed file",
    "SelectTestCase.test_select": "the pipe of a child",
    "SelectTestCase.test_select_mutated": "standard output",
}
RUNS = (
    Run("test.test_select"),
    Run("test.test_select", replaced=True),
    Run("test.test_select", replaced=True, high=True),
    Run("test.test_select", high=True, must_fail=MUST_FAIL_HIGH),
    Run("test.test_poll"),
    Run("test.test_poll", replaced=True),
    Run("test.test_epoll"),
    Run("test.test_epoll", replaced=True),
)

if __name__ == "__main__":
    sys.exit(Peer("select", "select", RUNS).main())
