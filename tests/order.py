"""The order in which the tests begin."""

from __future__ import annotations

from typing import Final

#: Folders whose tests take longest begin first: at the end one process would still work on them, the others be done.
#: Packaging is first, since tests with Spark set variables for the rest of their process.
FIRST: Final = ("packaging", "spark", "ui", "crash")


def rank(nodeid: str) -> int:
    """Return the place of a test's folder in the order; tests of one place stay in their order."""
    root, _, rest = nodeid.partition("/")
    folder = rest.partition("/")[0]
    return FIRST.index(folder) if root == "tests" and folder in FIRST else len(FIRST)
