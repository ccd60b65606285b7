"""Orders are taken, refused and remembered."""

import pika
import pytest
from orders.shop import MOST, PATIENCE, Shop, SoldOut


@pytest.fixture
def shop(leveret_url):
    with Shop(leveret_url) as opened:
        yield opened


def test_an_order_waits_to_be_packed(leveret, shop):
    shop.order(7, {"chair": 4})
    (order,) = leveret.messages("orders")
    assert order.json() == {"number": 7, "articles": {"chair": 4}}
    assert (order.properties["message_id"], order.properties["delivery_mode"]) == ("7", 2)


def test_a_hundred_orders_are_enough(leveret, shop):
    for number in range(MOST):
        shop.order(number, {"chair": 1})
    with pytest.raises(SoldOut, match="order 100 was refused: 100 are waiting"):
        shop.order(MOST, {"chair": 1})
    assert len(leveret.messages("orders")) == MOST


def test_a_refusal_that_cannot_be_had_otherwise(leveret, shop):
    with leveret.faults.refuse(queue="orders", message=lambda order: order.json()["number"] == 2):
        shop.order(1, {"chair": 1})
        with pytest.raises(SoldOut):
            shop.order(2, {"chair": 1})
    assert [order.json()["number"] for order in leveret.messages("orders")] == [1]


def test_a_lost_confirm_means_two_orders(leveret, shop):
    with leveret.faults.drop_connection(after="basic.publish", queue="orders"):
        shop.order(7, {"table": 1})
    assert [order.properties["message_id"] for order in leveret.messages("orders")] == ["7", "7"]


def test_an_order_that_nobody_packs_is_forgotten(leveret, shop):
    shop.order(7, {"chair": 4})
    leveret.clock.advance(PATIENCE * 3600 - 1)
    assert len(leveret.messages("orders")) == 1
    leveret.clock.advance(1)
    assert leveret.messages("orders") == []
    (forgotten,) = leveret.messages("forgotten")
    assert forgotten.headers["x-death"][0]["reason"] == "expired"


def test_orders_survive_the_broker(leveret, shop):
    shop.order(7, {"chair": 4})
    leveret.restart()
    shop.order(8, {"chair": 1})
    assert [order.json()["number"] for order in leveret.messages("orders")] == [7, 8]


def test_without_a_broker_there_are_no_orders(leveret, shop):
    leveret.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        shop.order(7, {"chair": 4})
