from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leveret.broker.core.broker import Broker
from leveret.broker.core.global_parameters import CLUSTER_ID, CLUSTER_NAME, GlobalParameters
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.definitions_database import Key
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers


class RememberingJournal:
    """A journal that can be looked into."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, Key], Mapping[str, Any]] = {}

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Remember it."""
        self.kept[kind, key] = value

    def delete(self, kind: str, key: Key) -> None:
        """Forget it."""
        del self.kept[kind, key]


def test_what_is_set_is_kept_and_what_is_cleared_is_not() -> None:
    parameters, journal = GlobalParameters(), RememberingJournal()
    parameters.journal = journal
    assert parameters.set("a", {"x": [1, None]})
    assert not parameters.set("a", None)
    assert parameters.set("b", 1)
    assert parameters.clear("b")
    assert not parameters.clear("b")
    assert dict(parameters.values) == {"a": None}
    assert journal.kept == {("global_parameter", ("a",)): {"value": None}}


def test_a_broker_has_one_identity_for_good() -> None:
    parameters = GlobalParameters()
    parameters.ensure_cluster_id()
    first = parameters.values[CLUSTER_ID]
    parameters.ensure_cluster_id()
    assert parameters.values[CLUSTER_ID] == first
    other = GlobalParameters()
    other.ensure_cluster_id()
    assert other.values[CLUSTER_ID] != first


def test_one_names_the_cluster() -> None:
    loop = ManualLoop()
    broker = Broker(Turn(loop.call_soon), ManualTimers(loop))
    assert broker.cluster_name == broker.default_cluster_name
    broker.global_parameters.set(CLUSTER_NAME, "shop")
    assert broker.cluster_name == "shop"
