from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.broker import Broker
from leveret.broker.operations.importing import load_vhosts, topology_steps
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_broker


@pytest.fixture
def broker() -> Broker:
    loop = ManualLoop()
    made = new_broker(loop)
    made.add_vhost("v")
    return made


def queue(name: object = "q", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "v", "durable": True, "auto_delete": False, "arguments": {}} | more


def exchange(name: object = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "v", "type": "direct", "durable": True} | more


def binding(**more: Any) -> dict[str, Any]:
    start = {"source": "x", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "k"}
    return start | {"arguments": {}} | more


def complaint(broker: Broker, document: dict[str, Any]) -> str:
    def load() -> None:
        load_vhosts(broker, document)
        list(topology_steps(broker, document, []))

    with pytest.raises(DefinitionsError) as caught:
        load()
    text = str(caught.value)
    assert "\n" not in text
    return text


class TestVhosts:
    def test_their_limits_are_set(self, broker: Broker) -> None:
        limits = {"max-connections": 5, "max-queues": -1}
        load_vhosts(
            broker,
            {
                "vhosts": [{"name": "w"}],
                "parameters": [
                    {"component": "vhost-limits", "name": "limits", "vhost": "w", "value": limits},
                    {"component": "federation", "name": "f", "vhost": "nowhere", "value": {}},
                ],
            },
        )
        vhost = broker.vhosts["w"]
        assert (vhost.max_connections, vhost.max_queues) == (5, -1), "RabbitMQ shows a limit below 0, which is none"

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            ({"vhosts": {}}, "vhosts: must be a list, is dict"),
            ({"vhosts": "v"}, "vhosts: must be a list, is str"),
            ({"vhosts": ["v"]}, "vhosts: every entry must be an object, 'v' is not"),
            ({"vhosts": [{}]}, "'name' must be a string"),
            ({"vhosts": [{"name": 5}]}, "'name' must be a string"),
        ],
    )
    def test_malformed_vhosts_are_told(self, broker: Broker, document: dict[str, Any], expected: str) -> None:
        assert expected in complaint(broker, document)

    def test_limits_need_their_vhost(self, broker: Broker) -> None:
        entry = {"component": "vhost-limits", "vhost": "w", "name": "limits", "value": {}}
        assert "there is no vhost 'w'" in complaint(broker, {"parameters": [entry]})


class TestTopology:
    def test_what_is_left_out_has_a_default(self, broker: Broker) -> None:
        list(topology_steps(broker, {"queues": [{"name": "q", "vhost": "v"}]}, []))
        made = broker.vhosts["v"].queues["q"]
        assert (made.durable, made.auto_delete, made.arguments) == (True, False, ())

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            ({"queues": [queue(vhost="w")]}, "there is no vhost 'w'"),
            ({"queues": [{"name": "q"}]}, "'vhost' must be a string"),
            ({"queues": [queue(name=None)]}, "'name' must be a string"),
            ({"queues": [queue(arguments=[1])]}, "'arguments' must be an object"),
            ({"queues": [queue(arguments={"x-max-length": -1})]}, "{value_negative,-1}"),
            ({"exchanges": [exchange(type="zzz")]}, "zzz"),
            ({"exchanges": [exchange(name="amq.zzz")]}, "reserved prefix"),
            ({"exchanges": [exchange(type=None)]}, "'type' must be a string"),
            ({"queues": [queue()], "bindings": [binding(source="")]}, "default exchange"),
            ({"bindings": "x"}, "bindings: must be a list, is str"),
        ],
    )
    def test_what_cannot_be_had_is_told_with_its_section(
        self, broker: Broker, document: dict[str, Any], expected: str
    ) -> None:
        text = complaint(broker, document)
        assert expected in text
        if "'arguments'" not in expected:
            assert text.startswith(tuple(document))
