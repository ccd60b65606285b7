"""Fixtures: a virtual host in memory, on a clock that the test sets."""

from __future__ import annotations

import pytest

from leveret.broker.core.vhosts.vhost import VirtualHost
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_vhost


@pytest.fixture
def loop() -> ManualLoop:
    """The event loop, whose time only the test advances."""
    return ManualLoop()


@pytest.fixture
def vhost(loop: ManualLoop) -> VirtualHost:
    """A virtual host on that loop."""
    return new_vhost(loop)
