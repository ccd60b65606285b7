"""Events are described only if somebody wants them, and say who has done what."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.events import BROKER, Actor, Event, Events
from leveret.broker.core.vhosts.event_exchange import event_headers
from leveret.protocol.field_table import FieldValue
from leveret.storage.clock import Clock


class Taker:
    """Takes events of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.taken: list[Event] = []

    def wants(self, kind: str) -> bool:
        return kind == self.kind

    def take(self, event: Event) -> None:
        self.taken.append(event)


def never() -> dict[str, Any]:
    raise AssertionError("nobody wants it")


def test_what_nobody_wants_is_not_described() -> None:
    events = Events(Clock())
    events.tell("queue.created", never)
    events.takers.append(Taker("queue.deleted"))
    events.tell("queue.created", never)


def test_the_actor_is_who_acts_now() -> None:
    events, taker = Events(Clock()), Taker("x")
    events.takers.append(taker)
    events.tell("x", dict, {"a": 1})
    events.actor = Actor("ann", "10.0.0.1")
    events.tell("x", dict, {"a": 2})
    events.tell("x", dict, {"a": 3}, by_broker=True)
    events.tell("x", dict, {"a": 4}, actor=Actor("bob"))
    assert [event.user for event in taker.taken] == ["rmq-internal", "ann", "rmq-internal", "bob"]
    assert [event.actor.user for event in taker.taken] == ["rmq-internal", "ann", "ann", "bob"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", FieldValue("S", b"a")),
        (True, FieldValue("t", True)),
        (5, FieldValue("l", 5)),
        (1.5, FieldValue("d", 1.5)),
        ({"a": 1}, FieldValue("F", (("a", FieldValue("l", 1)),))),
        (["a"], FieldValue("A", (FieldValue("S", b"a"),))),
        ([], FieldValue("A", ())),
        ((), FieldValue("A", ())),
        ((("k", FieldValue("V", None)),), FieldValue("A", (FieldValue("S", b'{<<"k">>,void,undefined}'),))),
        (
            (("k", FieldValue("A", (FieldValue("I", 1), FieldValue("D", (2, 314))))),),
            FieldValue("A", (FieldValue("S", b'{<<"k">>,array,[{signedint,1},{decimal,{2,314}}]}'),)),
        ),
    ],
)
def test_headers(value: object, expected: FieldValue) -> None:
    assert dict(event_headers(Event("x", 1, BROKER, False, {"key": value})))["key"] == expected


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", b"{127,0,0,1}"), ("2001:db8::1", b"{8193,3512,0,0,0,0,0,1}"), ("fd", b"fd")]
)
def test_addresses_are_erlangs(host: str, shown: bytes) -> None:
    headers = dict(event_headers(Event("x", 1, Actor("ann", host), False, {})))
    assert headers["peer_host"] == FieldValue("S", shown)


def test_without_an_address_there_is_none() -> None:
    assert "peer_host" not in dict(event_headers(Event("x", 1, BROKER, False, {})))
