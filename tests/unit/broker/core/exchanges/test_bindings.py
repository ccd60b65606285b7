from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.base import Binding
from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.protocol.field_table import FieldTable
from tests.support.bound import named_queue, table

SOURCE = DirectExchange("/", "source")


def binding(key: str = "", arguments: FieldTable = ()) -> Binding:
    return Binding(SOURCE, named_queue("d"), key, arguments)


def test_the_order_of_arguments_does_not_count() -> None:
    one = binding("k", table(("b", "I", 1), ("a", "I", 2)))
    other = binding("k", table(("a", "I", 2), ("b", "I", 1)))

    assert one.identity == other.identity
    assert one.arguments == other.arguments == table(("a", "I", 2), ("b", "I", 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "I", 1), ("a", "l", 1)),
        (("a", "I", 1), ("a", "d", 1.0)),
        (("a", "I", 1), ("a", "t", True)),
        (("a", "S", b"v"), ("a", "x", b"v")),
        (("a", "A", ()), ("a", "F", ())),
        (("a", "I", 1), ("A", "I", 1)),
    ],
)
def test_types_of_arguments_count(one: tuple[str, str, object], other: tuple[str, str, object]) -> None:
    assert binding("", table(one)).identity != binding("", table(other)).identity


def test_both_letters_of_long_are_one_type() -> None:
    assert binding("", table(("a", "L", 2**64 - 1))).identity == binding("", table(("a", "l", -1))).identity


def test_source_destination_and_key_count() -> None:
    other_source = DirectExchange("/", "other")
    identities = {
        binding().identity,
        binding("k").identity,
        Binding(other_source, named_queue("d"), "").identity,
        Binding(SOURCE, named_queue("e"), "").identity,
        Binding(SOURCE, DirectExchange("/", "d"), "").identity,
    }

    assert len(identities) == 5
    assert binding().identity in identities
