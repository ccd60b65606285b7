"""Orders are packed, each once."""

import pytest
from orders.packer import Packer
from orders.shop import Shop


@pytest.fixture
def packed(leveret_url):
    """Numbers of packed orders, while a packer works."""
    numbers = []
    packer = Packer(leveret_url, lambda number, articles: numbers.append(number))
    packer.start()
    yield numbers
    packer.stop()


def test_orders_are_packed_in_order(leveret, packed):
    with Shop(leveret.url) as shop:
        for number in range(20):
            shop.order(number, {"chair": 1})
    leveret.wait_until(lambda: len(packed) == 20)
    assert packed == list(range(20))
    leveret.wait_until(lambda: not leveret.messages("orders"))


def test_the_packer_survives_the_broker(leveret, packed):
    with Shop(leveret.url) as shop:
        shop.order(1, {"chair": 1})
        leveret.wait_until(lambda: packed == [1])
        leveret.restart()
        shop.order(2, {"chair": 1})
    leveret.wait_until(lambda: packed == [1, 2])


def test_an_order_that_comes_twice_is_packed_once(leveret, packed):
    with leveret.faults.drop_connection(before="basic.ack", queue="orders") as fault, Shop(leveret.url) as shop:
        shop.order(1, {"chair": 1})
        leveret.wait_until(lambda: fault.count)
        shop.order(2, {"chair": 1})
        leveret.wait_until(lambda: not leveret.messages("orders"))
    assert packed == [1, 2]
