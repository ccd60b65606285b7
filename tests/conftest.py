"""Cleans the environment, orders the tests, and knows their tiers.

With STRICT_SKIPS=1 a run fails if tests are skipped or left out that are not allowed to be.
"""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.allowed_skips import Skip, unexpected
from tests.environment import clean
from tests.support.examples import load_profile
from tests.tiers import INTERPRETED, NEEDS, is_slow, lacking, left_out, rank

# Before pytest-xdist starts its processes and a test its programs; they inherit it. Nor may the environment forbid byte
# code: each of hundreds of programs would compile all its modules, which is half of its CPU time.
sys.dont_write_bytecode = False
clean(os.environ)
time.tzset()


def pytest_configure(config: pytest.Config) -> None:
    """Say how much Hypothesis tries, before a test's module asks."""
    load_profile(is_first_tier="not slow" in config.option.markexpr)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the longest tests begin first, and leave out what this machine cannot run."""
    items.sort(key=lambda item: rank(item.nodeid))
    if any(item.get_closest_marker(need.marker) for need in NEEDS for item in items):
        missing = [need.marker for need in lacking()]
        lack = [item for item in items if any(item.get_closest_marker(marker) for marker in missing)]
        if lack:
            config.hook.pytest_deselected(items=lack)
            items[:] = [item for item in items if item not in set(lack)]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the second tier, and those of one form; before `-m` selects."""
    if is_slow(item.nodeid):
        item.add_marker("slow")
    if item.nodeid.startswith(INTERPRETED):
        item.add_marker("interpreted")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Look at what was skipped; in the process that collects the results of all others."""
    if (coverage := sys.modules.get("coverage")) is not None and (measured := coverage.Coverage.current()) is not None:
        # A worker that takes longer than 10 s to end, on a busy machine, is killed.
        measured.save()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    if os.environ.get("STRICT_SKIPS") != "1":
        return
    if left_out():
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
    reports = reporter.stats.get("skipped", [])
    places = [report.longrepr for report in reports if isinstance(report.longrepr, tuple)]
    found = unexpected(Skip(str(path), reason.removeprefix("Skipped: ")) for path, _, reason in places)
    if found:
        reporter.section("skips that tests/allowed_skips.py does not allow")
        for skip in found:
            reporter.line(f"{skip.source}: {skip.reason}", red=True)
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, if the run is one of whole tiers."""
    if not hasattr(config, "workerinput") and config.args == config.getini("testpaths") and left_out():
        terminalreporter.line(left_out(), yellow=True)
