from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions import for_vhost
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.broker.operations.broker_definitions import (
    DefinitionsKeeper,
    export_steps,
    import_definitions,
    import_steps,
    require_tags,
    vhost_export_steps,
)
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldValue, longstr
from leveret.storage.definitions_database import DefinitionsDatabase
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_broker

METADATA = {"description": "shop", "tags": ["a", "b"], "default_queue_type": "quorum"}


def whole(steps: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value if isinstance(value, str | list) else list(value) for key, value in steps}


@pytest.fixture
def broker() -> Broker:
    """A broker with one of everything."""
    made = new_broker(ManualLoop())
    vhost = made.add_vhost("v")
    vhost.metadata = VirtualHostMetadata("shop", ("a", "b"), False, "quorum")
    vhost.set_limits(None, 9)
    made.add_vhost("bare")
    made.global_parameters.set("g", {"x": 1})
    vhost.declare_exchange("x", "topic", True, False, True, (("alternate-exchange", longstr("amq.fanout")),))
    vhost.declare_exchange("passing", "fanout", False, False, False, ())
    q = declare(vhost, "q", arguments=(("x-max-length", FieldValue("l", 5)), ("x-queue-type", longstr("classic"))))
    declare(vhost, "transient", durable=False)
    mine = declare(vhost, "mine", durable=False, owner=object())
    topology = vhost.topology
    topology.bind(topology.exchanges["x"], q, "k.#", (("a", FieldValue("l", 1)),))
    topology.bind(topology.exchanges["x"], topology.exchanges["passing"], "e", ())
    topology.bind(topology.exchanges["x"], mine, "m", ())
    vhost.policies.set(Policy("p", "^q", {"max-length": 3}, 2, "queues"), operator=False)
    vhost.policies.set(Policy("o", "^q", {"max-length": 4}), operator=True)
    return made


@pytest.fixture
def accounts() -> Accounts:
    made = Accounts()
    made.add_user("u", "secret", ["management"])
    made.set_user_limits("u", 5, -1)
    made.set_permissions("u", "v", "", "^q", ".*")
    made.set_topic_permissions("u", "v", "x", "^a", ".*")
    return made


def test_what_is_exported_and_what_is_left_out(broker: Broker, accounts: Accounts) -> None:
    document = whole(export_steps(broker, accounts))
    assert document["rabbitmq_version"] == "3.10.8"
    assert document["vhosts"] == [
        {"name": "v", **METADATA, "metadata": METADATA},
        {"name": "bare"},
    ]
    assert [queue["type"] for queue in document["queues"]] == ["classic"] * 2, "declared before there was a default"
    assert [queue["name"] for queue in document["queues"]] == ["q", "transient"], "exclusive queues are left out"
    assert [exchange["name"] for exchange in document["exchanges"]] == ["x", "passing"]
    assert [binding["destination"] for binding in document["bindings"]] == ["q", "passing"]
    assert [(entry["component"], entry["name"]) for entry in document["parameters"]] == [
        ("operator_policy", "o"),
        ("vhost-limits", "limits"),
    ]
    assert document["global_parameters"] == [{"name": "g", "value": {"x": 1}}]


def test_what_is_exported_can_be_imported(broker: Broker, accounts: Accounts) -> None:
    document = whole(export_steps(broker, accounts))
    other, other_accounts = new_broker(ManualLoop()), Accounts()
    import_definitions(document, other, other_accounts, "a test")
    again = whole(export_steps(other, other_accounts))
    assert again == document
    assert other_accounts.verify("u", b"secret") is not None


def test_one_virtual_host_moves_into_another(broker: Broker) -> None:
    document = whole(vhost_export_steps(broker, broker.vhosts["v"]))
    assert sorted(document) == ["bindings", "exchanges", "parameters", "policies", "queues", "rabbit_version"]
    assert all("vhost" not in entry for section in ("queues", "exchanges", "bindings") for entry in document[section])
    import_definitions(for_vhost(document, "bare"), broker, Accounts(), "a test")
    moved = whole(vhost_export_steps(broker, broker.vhosts["bare"]))
    for section in ("queues", "exchanges", "bindings"):
        assert moved[section] == document[section]
    for section in ("parameters", "policies"):
        assert moved[section] == [{**entry, "vhost": "bare"} for entry in document[section]]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"users": [{"name": "u"}]}, "tags_not_present"),
        (
            {"permissions": [{"user": "z", "vhost": "v", "configure": "", "write": "", "read": ""}]},
            ["no_such_user", "z"],
        ),
        ({"queues": [{"name": "q", "vhost": "z"}]}, ["no_such_vhost", "z"]),
        (
            {"policies": [{"vhost": "v", "name": "b", "pattern": "x", "definition": {"nosuch": 1}}]},
            'Validation failed\n\n[{&lt;&lt;"nosuch"&gt;&gt;,1}] are not recognised policy settings\n (v/b)',
        ),
        ({"queues": [{"name": "new", "vhost": "v", "durable": "true"}]}, ["not_boolean", "true"]),
    ],
)
def test_imports_refuse_what_rabbitmq_refuses(broker: Broker, document: dict[str, Any], reason: object) -> None:
    def load() -> None:
        require_tags(document)
        import_definitions(document, broker, Accounts(), "a test")

    with pytest.raises(DefinitionsError) as caught:
        load()
    assert caught.value.reason == reason


def test_what_leveret_does_not_have_is_left_out_and_named(broker: Broker) -> None:
    def policy(name: str, **definition: object) -> dict[str, Any]:
        return {"vhost": "bare", "name": name, "pattern": "x", "definition": definition}

    operator = {"vhost": "bare", "name": "o", "component": "operator_policy"}
    document = {
        "parameters": [
            {"vhost": "nowhere", "component": "shovel", "name": "s", "value": {"src-protocol": "amqp10"}},
            {**operator, "value": policy("", **{"ha-mode": "all", "max-length": 1, "dead-letter-exchange": "x"})},
        ],
        "policies": [
            policy("newer", **{"max-length": 5, "target-group-size": 3, "stream-filter-size-bytes": 16}),
            policy("plugin", **{"federation-upstream-set": "all"}),
        ],
        "bindings": [
            {"vhost": "v", "source": "x", "destination": "nosuch", "routing_key": "", "arguments": {}},
            {"vhost": "v", "source": "x", "destination": "q", "routing_key": "new", "arguments": {}},
        ],
    }
    left_out: list[str] = []
    for _ in import_steps(document, broker, Accounts(), left_out):
        pass
    assert left_out == [
        "parameters: 's' of component 'shovel' in vhost 'nowhere'",
        "policies: 'target-group-size', 'stream-filter-size-bytes' of 'newer' in vhost 'bare'",
        "policies: 'federation-upstream-set' of 'plugin' in vhost 'bare'",
        "parameters: 'ha-mode', 'dead-letter-exchange' of 'o' in vhost 'bare'",
        "bindings: from 'x' to queue 'nosuch' in vhost 'v', as one of these does not exist",
    ]
    policies = broker.vhosts["bare"].policies
    assert {name: each.definition for name, each in policies.policies.items()} == {"newer": {"max-length": 5}}
    assert {name: each.definition for name, each in policies.operator_policies.items()} == {"o": {"max-length": 1}}


def test_changed_accounts_are_saved_once_at_the_end_of_the_turn(tmp_path: Path) -> None:
    loop, calls, accounts = ManualLoop(), SimpleQueue[Callable[[], None]](), Accounts()
    broker, database = new_broker(loop), DefinitionsDatabase(tmp_path / "definitions")
    keeper = DefinitionsKeeper(database, broker, accounts, calls.put)
    broker.turn.before_writing.append(broker.gate.write)
    keeper.restore()
    accounts.add_user("a", "secret")
    accounts.add_user("b", "secret")
    assert list(database.rows("accounts")) == []
    loop.run()
    calls.get(timeout=60)()
    ((_, saved),) = [row.read() for row in database.rows("accounts")]
    assert [user["name"] for user in saved["users"]] == ["a", "b"]
    assert not database.changes
    keeper.close()
