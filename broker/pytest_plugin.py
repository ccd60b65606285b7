"""pytest fixtures with a broker, available wherever Leveret is installed.

All tests of a run share one broker. A test that needs a separate one uses ``leveret.Leveret`` or
``leveret.LeveretThread``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leveret.broker.embedded import LeveretThread


@pytest.fixture(scope="session")
def leveret() -> Iterator[LeveretThread]:
    """A broker on free loopback ports with a temporary data directory; see its ``url`` and ``http_url``."""
    # Imported on first use, as pytest loads this module in every run.
    from leveret.broker.embedded import LeveretThread

    with LeveretThread() as broker:
        yield broker


@pytest.fixture(scope="session")
def leveret_url(leveret: LeveretThread) -> str:
    """AMQP URL of the broker."""
    return leveret.url
