from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.fanout import FanoutExchange
from tests.support.bound import bind_named, names, table


@pytest.mark.parametrize("key", ["", "a", "z.y"])
def test_sends_to_all_whatever_the_key(key: str) -> None:
    exchange = FanoutExchange("/", "x")
    bind_named(exchange, "q1", "a")
    bind_named(exchange, "q2", "")
    bind_named(exchange, "q3", "b", table(("x-match", "I", 5)))

    assert names(exchange.destinations(key, table(("h", "t", True)))) == ["q1", "q2", "q3"]
