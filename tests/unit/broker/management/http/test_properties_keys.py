from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.base import Binding
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.broker.management.http.documents.topology import matches_properties_key, properties_key
from leveret.protocol.field_table import FieldTable, FieldValue, longstr

X = EXCHANGE_TYPES["direct"]("v", "x")


def key(routing_key: str, arguments: FieldTable = ()) -> str:
    return properties_key(Binding(X, X, routing_key, arguments))


@pytest.mark.parametrize(
    ("routing_key", "expected"),
    [("", "~"), ("rk", "rk"), ("~", "%7E"), ("a b/c~d.#", "a+b%2Fc%7Ed.%23"), ("ä", "%C3%A4"), ("\udcff", "%FF")],
)
def test_without_arguments(routing_key: str, expected: str) -> None:
    assert key(routing_key) == expected


def test_arguments_make_a_hash_of_six_characters() -> None:
    one, two = (("a", FieldValue("l", 1)),), (("a", FieldValue("l", 2)),)
    assert key("", one)[0] == "~"
    assert len(key("", one)) == 7
    assert len({key("r", one), key("r", two), key("r"), key("s", one)}) == 4


def test_order_of_arguments_does_not_matter() -> None:
    arguments = (("a", FieldValue("l", 1)), ("b", longstr("x")))
    assert key("r", arguments) == key("r", arguments[::-1])


@pytest.mark.parametrize(
    ("routing_key", "segment", "expected"),
    [
        ("a b", "a+b", True),
        ("a b", "a b", True),
        ("#", "%23", True),
        ("#", "#", True),
        ("", "~", True),
        ("", "", False),
        ("a", "b", False),
        ("~", "%7E", True),
        ("~", "", False),
    ],
)
def test_matching_path_segments(routing_key: str, segment: str, expected: bool) -> None:
    assert matches_properties_key(key(routing_key), segment) is expected
