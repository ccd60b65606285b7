"""The texts were observed on RabbitMQ 3.10.8."""

from __future__ import annotations

from typing import Literal

import pytest

from leveret.broker.core.equivalence import check_equal, check_flag, check_name
from leveret.protocol.faults import ChannelFault, ReplyCode
from leveret.protocol.field_table import FieldValue
from tests.support.bound import table

Field = tuple[str, object]


def field(given: Field | None) -> FieldValue | None:
    return None if given is None else FieldValue(*given)


@pytest.mark.parametrize(
    ("received", "current"),
    [
        (None, None),
        (("I", 10), ("I", 10)),
        (("b", 10), ("l", 10)),
        (("L", 10), ("i", 10)),
        (("L", 2**64 - 1), ("l", -1)),
        (("T", 10), ("I", 10)),
        (("S", b"a"), ("x", b"a")),
        (("f", 1.5), ("d", 1.5)),
        (("t", True), ("t", True)),
        (("A", (FieldValue("I", 1),)), ("A", (FieldValue("I", 1),))),
        (("A", ()), ("F", ())),
        (("V", None), ("V", None)),
    ],
)
def test_equal_arguments(received: Field | None, current: Field | None) -> None:
    check_equal("queue", "q", "/", "x-max-length", field(received), field(current))
    check_equal("queue", "q", "/", "x-max-length", field(current), field(received))


@pytest.mark.parametrize(
    ("received", "current", "texts"),
    [
        (("I", 11), ("I", 10), ("'11'", "'10'")),
        (("I", -1), ("I", 10), ("'-1'", "'10'")),
        (("d", 10.0), ("I", 10), ("'10.0'", "'10'")),
        (("d", 1e15), ("I", 10), ("'1.0e15'", "'10'")),
        (("S", b"10"), ("I", 10), ("'10'", "'10'")),
        (("S", b""), ("I", 10), ("''", "'10'")),
        (("t", True), ("I", 1), ("'true'", "'1'")),
        (("S", b"true"), ("t", True), ("'true'", "'true'")),
        (("A", ()), ("I", 10), ("'[]'", "'10'")),
        (
            ("F", table(("k", "S", b"v"), ("z", "A", (FieldValue("S", b"a"),)))),
            ("I", 10),
            ('\'[{<<"k">>,longstr,<<"v">>},{<<"z">>,array,[{longstr,<<"a">>}]}]\'', "'10'"),
        ),
        (("A", (FieldValue("I", 1),)), ("A", (FieldValue("l", 1),)), ("'[{signedint,1}]'", "'[{long,1}]'")),
        (("V", None), ("I", 10), ("none", "'10'")),
        (None, ("I", 60000), ("none", "the value '60000' of type 'signedint'")),
        (("I", 60000), None, ("the value '60000' of type 'signedint'", "none")),
        (("i", 5), None, ("the value '5' of type 'unsignedint'", "none")),
        (("L", 5), None, ("the value '5' of type 'long'", "none")),
        (("d", 2.0), None, ("the value '2.0' of type 'double'", "none")),
        (("t", True), None, ("the value 'true' of type 'bool'", "none")),
        (("D", (1, 5)), None, ("the value '{1,5}' of type 'decimal'", "none")),
        (("V", None), None, ("the value 'undefined' of type 'void'", "none")),
        (("S", "é".encode()), None, ("the value 'é' of type 'longstr'", "none")),
        (("x", b"a"), None, ("the value 'a' of type 'binary'", "none")),
        (("A", ()), None, ("the value '[]' of type 'array'", "none")),
    ],
)
def test_other_arguments_are_refused(received: Field | None, current: Field | None, texts: tuple[str, str]) -> None:
    with pytest.raises(ChannelFault) as caught:
        check_equal("queue", "q", "v", "x-max-length", field(received), field(current))

    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    assert caught.value.explanation == (
        f"inequivalent arg 'x-max-length' for queue 'q' in vhost 'v': received {texts[0]} but current is {texts[1]}"
    )


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_flags(kind: Literal["queue", "exchange"]) -> None:
    check_flag(kind, "n", "/", "durable", True, True)
    check_flag(kind, "n", "/", "durable", False, False)

    with pytest.raises(ChannelFault) as caught:
        check_flag(kind, "n", "/", "durable", False, True)

    assert caught.value.text == (
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for {kind} 'n' in vhost '/':"
        " received 'false' but current is 'true'"
    )


def test_names() -> None:
    check_name("exchange", "x", "/", "type", "fanout", "fanout")

    with pytest.raises(ChannelFault) as caught:
        check_name("exchange", "x", "/", "type", "fanout", "direct")

    assert caught.value.explanation == (
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"
    )
