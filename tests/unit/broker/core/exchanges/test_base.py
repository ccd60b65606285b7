from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.protocol.field_table import FieldTable
from tests.support.bound import table


@pytest.mark.parametrize(
    ("arguments", "alternate"),
    [
        ((), None),
        (table(("alternate-exchange", "S", b"other")), "other"),
        (table(("alternate-exchange", "S", "é".encode())), "é"),
        (table(("alternate-exchange", "S", b"")), ""),
        (table(("alternate-exchange", "S", b"a"), ("alternate-exchange", "S", b"b")), "a"),
        (table(("alternate", "S", b"other")), None),
    ],
)
def test_the_alternate_exchange_comes_from_the_arguments(arguments: FieldTable, alternate: str | None) -> None:
    exchange = FanoutExchange("/", "x", True, False, False, arguments)

    assert exchange.alternate == alternate
    assert exchange.declared_alternate == alternate


def test_keeps_what_was_declared() -> None:
    exchange = FanoutExchange("v", "x", False, True, True, table(("k", "I", 1)))

    assert (exchange.vhost_name, exchange.name) == ("v", "x")
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (False, True, True)
    assert exchange.arguments == table(("k", "I", 1))
