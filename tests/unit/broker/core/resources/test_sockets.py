from __future__ import annotations

import pytest

from leveret.broker.core.resources import sockets as socket_budget
from leveret.broker.core.resources.sockets import SocketBudget


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> SocketBudget:
    """Of 1,024 files 540 are for clients."""
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 1024)
    return SocketBudget(384)


def test_the_store_has_its_files_and_clients_at_least_half(
    budget: SocketBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert budget.total == 540
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 200)
    assert budget.total == 100


def test_http_has_a_quarter(budget: SocketBudget) -> None:
    budget.http.count(range(134))
    assert not budget.http.is_full
    budget.http.count(range(1))
    assert budget.http.is_full
    assert not budget.amqp.is_full


def test_http_never_has_more_than_rabbitmq_allows(budget: SocketBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 1_000_000)
    budget.http.count(range(1024))
    assert budget.http.is_full


def test_amqp_has_what_http_leaves(budget: SocketBudget) -> None:
    budget.http.count(range(40))
    budget.amqp.count(range(499))
    assert not budget.amqp.is_full
    budget.amqp.count(range(1))
    assert budget.amqp.is_full
    assert budget.used == 540


def test_somebody_can_always_look_what_is_wrong(budget: SocketBudget) -> None:
    budget.amqp.count(range(540))
    budget.http.count(range(15))
    assert not budget.http.is_full
    budget.http.count(range(1))
    assert budget.http.is_full


def test_handshakes_count_twice_and_have_half(budget: SocketBudget) -> None:
    budget.http.handshakes = 33
    assert budget.http.used == 66
    assert not budget.http.refuse(with_handshake=True)
    budget.http.handshakes = 34
    assert budget.http.refuse(with_handshake=True)
    assert not budget.http.refuse()


def test_a_refusal_is_logged_once_until_there_is_room(budget: SocketBudget, caplog: pytest.LogCaptureFixture) -> None:
    connections: list[None] = []
    budget.amqp.count(connections)
    for number in (540, 541, 539, 540):
        connections[:] = [None] * number
        assert budget.amqp.refuse() is (number >= 540)
    assert len(caplog.messages) == 2
    assert "540 of 1024 file descriptors (ulimit -n)" in caplog.text
