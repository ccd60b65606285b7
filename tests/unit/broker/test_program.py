from __future__ import annotations

import signal

import pytest

from leveret.broker import program


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that would have ended this process."""
    numbers: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(signal, "raise_signal", numbers.append)
    return numbers


@pytest.mark.parametrize(
    ("seconds", "at_once"),
    [(0.0, False), (0.9, False), (1.0, True), (60.0, True)],
    ids=["twice", "soon", "later", "late"],
)
def test_only_a_later_second_signal_stops_at_once(raised: list[int], seconds: float, at_once: bool) -> None:
    """`timeout`, or Ctrl-C with a wrapper that passes it on, sends one request to stop as two signals."""
    now = 100.0
    stopping = program._Stopping(lambda: now)
    stopping.receive(signal.SIGTERM)
    assert stopping.requested.is_set()
    now += seconds
    stopping.receive(signal.SIGTERM)
    assert raised == ([signal.SIGTERM] if at_once else [])
