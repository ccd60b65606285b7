from __future__ import annotations

import time

import pytest

from leveret.broker.core.node import Node


def test_its_age_does_not_follow_the_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= node.uptime() < 60_000
