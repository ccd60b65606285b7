"""pytest fixtures with a broker, available wherever Leveret is installed.

The tests of a process share one broker, which is as good as new for each test that asks for ``leveret`` or
``leveret_url``. ``leveret_session`` is another one, which keeps what tests leave in it. For a broker of its own a test
uses ``leveret.Leveret`` or ``leveret.LeveretThread``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leveret.broker.embedded_cluster import LeveretCluster
    from leveret.broker.embedded_thread import LeveretThread

_MARKER = (
    "leveret(options=None, definitions=None): the broker of the fixture `leveret` has these options, by their names in"
    " a configuration file, and definitions: a document as RabbitMQ exports it, or its path from the test's folder"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_sessionfinish() -> None:
    """Stop the brokers."""
    # Imported by the fixtures, if they were used.
    module = sys.modules.get("leveret.broker.embedded_thread")
    if module is not None:
        module.stop_clean_brokers()


@pytest.fixture
def leveret(request: pytest.FixtureRequest) -> Iterator[LeveretThread]:
    """A broker on free loopback ports without connections and data; see its ``url`` and ``http_url``.

    It is clean for each test; the marker ``leveret`` gives it options and definitions.
    """
    # Imported on first use, as pytest loads this module in every run.
    from leveret.broker.embedded_thread import clean_broker

    options, definitions = _wishes(request)
    with clean_broker(options, definitions) as broker:
        yield broker


@pytest.fixture
def leveret_url(leveret: LeveretThread) -> str:
    """AMQP URL of a broker without connections and data."""
    return leveret.url


@pytest.fixture
def leveret_cluster(request: pytest.FixtureRequest) -> Iterator[LeveretCluster]:
    """A leader and two standbys, of this test alone; the marker ``leveret`` gives them options and definitions."""
    from leveret.broker.embedded_cluster import LeveretCluster

    options, definitions = _wishes(request)
    with LeveretCluster(3, options, definitions) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def leveret_session() -> Iterator[LeveretThread]:
    """A broker that all tests of a process share, with all that they leave in it."""
    from leveret.broker.embedded_thread import clean_broker

    with clean_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def leveret_session_url(leveret_session: LeveretThread) -> str:
    """AMQP URL of the broker that all tests of a process share."""
    return leveret_session.url


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain how messages of a broker differ, if an assertion that they are equal fails."""
    if op != "==" or "leveret.broker.testing.messages" not in sys.modules:
        # Without that module there are no messages.
        return None
    from leveret.broker.testing.messages import explain_differences

    return explain_differences(left, right)


def _wishes(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Any]:
    """Return the options and definitions of all markers of a test; the closest one counts first."""
    options: dict[str, Any] = {}
    definitions: Any = None
    for marker in request.node.iter_markers("leveret"):
        unknown = set(marker.kwargs) - {"options", "definitions"}
        if marker.args or unknown:
            what = ", ".join(sorted(unknown)) or "positional arguments"
            raise pytest.UsageError(f"the marker leveret takes options= and definitions=, not {what}")
        options = {**(marker.kwargs.get("options") or {}), **options}
        definitions = marker.kwargs.get("definitions") if definitions is None else definitions
    if isinstance(definitions, str | Path):
        definitions = request.path.parent / definitions
    return options, definitions
