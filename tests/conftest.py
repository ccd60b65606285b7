"""Keeps byte code, orders the tests, and has a run with unexpected skips fail where STRICT_SKIPS=1 asks for that."""

from __future__ import annotations

import os
import sys

import pytest

from tests.allowed_skips import Skip, unexpected
from tests.order import rank

# Tests start hundreds of programs. Where the environment forbids byte code, each of them would compile all its modules,
# which is half of its CPU time. Set before pytest-xdist starts its processes, this holds for them too.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the longest tests begin first."""
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Look at what was skipped; in the process that collects the results of all others."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("STRICT_SKIPS") != "1" or reporter is None or hasattr(session.config, "workerinput"):
        return
    reports = reporter.stats.get("skipped", [])
    places = [report.longrepr for report in reports if isinstance(report.longrepr, tuple)]
    found = unexpected(Skip(str(path), reason.removeprefix("Skipped: ")) for path, _, reason in places)
    if found:
        reporter.section("skips that tests/allowed_skips.py does not allow")
        for skip in found:
            reporter.line(f"{skip.source}: {skip.reason}", red=True)
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
