"""Fixtures of pytest for programs that talk to a broker; they are there wherever Leveret is installed.

One broker serves a whole run. A test that needs one of its own uses ``leveret.Leveret`` or ``leveret.LeveretThread``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leveret.broker.embedded import LeveretThread


@pytest.fixture(scope="session")
def leveret() -> Iterator[LeveretThread]:
    """A broker on free ports of this machine, with temporary data: has ``url`` and ``http_url``."""
    # Imported when it is wanted, as pytest loads this module in every run.
    from leveret.broker.embedded import LeveretThread

    with LeveretThread() as broker:
        yield broker


@pytest.fixture(scope="session")
def leveret_url(leveret: LeveretThread) -> str:
    """AMQP URL of the broker."""
    return leveret.url
