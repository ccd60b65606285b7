from __future__ import annotations

import pytest

from leveret.broker.session.handshake import Capabilities
from leveret.protocol.field_table import FieldTable, FieldValue, longstr

NAMES = {
    "authentication_failure_close": "authentication_failure_close",
    "connection.blocked": "blocked",
    "consumer_cancel_notify": "consumer_cancel_notify",
}


def set_of(capabilities: Capabilities) -> set[str]:
    return {attribute for attribute in NAMES.values() if getattr(capabilities, attribute)}


def properties(*entries: tuple[str, FieldValue]) -> FieldTable:
    return (("product", longstr("x")), ("capabilities", FieldValue("F", entries)))


def test_without_client_properties_no_capability_is_set() -> None:
    assert set_of(Capabilities()) == set()
    assert set_of(Capabilities((("product", longstr("x")),))) == set()


@pytest.mark.parametrize("name", NAMES)
def test_each_is_read(name: str) -> None:
    assert set_of(Capabilities(properties((name, FieldValue("t", True))))) == {NAMES[name]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value",
    [FieldValue("t", False), longstr("true"), FieldValue("I", 1), FieldValue("V", None), FieldValue("F", ())],
)
def test_only_a_true_bool_sets_it(name: str, value: FieldValue) -> None:
    assert set_of(Capabilities(properties((name, value)))) == set()


def test_all_together_with_others() -> None:
    flags = [(name, FieldValue("t", True)) for name in (*NAMES, "basic.nack", "publisher_confirms")]
    assert set_of(Capabilities(properties(*flags))) == set(NAMES.values())


@pytest.mark.parametrize(
    "value", [longstr("connection.blocked"), FieldValue("t", True), FieldValue("A", (FieldValue("t", True),))]
)
def test_capabilities_that_are_not_a_table_are_ignored(value: FieldValue) -> None:
    assert set_of(Capabilities((("capabilities", value),))) == set()
