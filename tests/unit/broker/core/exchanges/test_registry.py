from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.broker.core.exchanges.plain_types import index_types
from leveret.broker.core.exchanges.registry import EXCHANGE_TYPES, check_exchange_type
from leveret.broker.core.exchanges.topic import TopicExchange
from leveret.protocol.faults import ChannelFault


def test_has_the_types_of_amqp_and_of_plugins() -> None:
    plugins = {"x-consistent-hash", "x-local-random", "x-modulus-hash", "x-random", "x-recent-history"}
    plugins |= {"x-delayed-message", "x-message-deduplication"}
    assert set(EXCHANGE_TYPES) == {"direct", "fanout", "headers", "topic"} | plugins
    assert all(name == exchange_type.type_name for name, exchange_type in EXCHANGE_TYPES.items())


def test_a_type_is_there_once() -> None:
    class OtherDirect(DirectExchange):
        __slots__ = ()

    with pytest.raises(ValueError, match="exchange type 'direct' is registered twice"):
        index_types([DirectExchange, TopicExchange, OtherDirect])


@pytest.mark.parametrize(
    ("type_name", "judgement"), [("zzz", "unknown"), ("", "invalid"), ("classic", "invalid"), ("x-zzz", "unknown")]
)
def test_other_types_are_refused(type_name: str, judgement: str) -> None:
    with pytest.raises(ChannelFault) as caught:
        check_exchange_type(type_name)

    assert str(caught.value) == f"406 PRECONDITION_FAILED - {judgement} exchange type '{type_name}'"


def test_existing_types_are_not_refused() -> None:
    for type_name in EXCHANGE_TYPES:
        check_exchange_type(type_name)
