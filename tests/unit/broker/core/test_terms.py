from __future__ import annotations

import pytest

from leveret.broker.core.terms import display_value, format_value, table_to_term, to_term
from leveret.protocol.faults import encode_reply_text
from leveret.protocol.field_table import FieldValue
from tests.support.bound import table


@pytest.mark.parametrize(
    ("kind", "value", "printed"),
    [
        ("I", -5, "-5"),
        ("L", 2**64 - 1, "-1"),
        ("T", 2**64 - 1, "18446744073709551615"),
        ("d", 10.0, "10.0"),
        ("d", 1e22, "1.0e22"),
        ("d", 1e-7, "1.0e-7"),
        ("f", 0.10000000149011612, "0.10000000149011612"),
        ("t", True, "true"),
        ("V", None, "undefined"),
        ("D", (2, 314), "{2,314}"),
        ("S", b"a", '<<"a">>'),
        ("x", b"", "<<>>"),
        ("S", b"\0\xff", "<<0,255>>"),
        ("S", b'a"b\\', '<<"a\\"b\\\\">>'),
        ("S", "é".encode(), '<<"é">>'),
        ("A", (), "[]"),
        ("F", (), "[]"),
        ("A", (FieldValue("I", 1), FieldValue("V", None)), "[{signedint,1},{void,undefined}]"),
        (
            "F",
            table(("k", "S", b"v"), ("z", "A", (FieldValue("S", b"a"),))),
            '[{<<"k">>,longstr,<<"v">>},{<<"z">>,array,[{longstr,<<"a">>}]}]',
        ),
    ],
)
def test_prints_as_erlang_does(kind: str, value: object, printed: str) -> None:
    assert encode_reply_text(format_value(FieldValue(kind, value))) == printed.encode()


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [("S", b"a b", "a b"), ("x", b"a", "a"), ("S", b"", ""), ("I", 1, "1"), ("t", False, "false"), ("A", (), "[]")],
)
def test_strings_alone_are_shown_bare(kind: str, value: object, shown: str) -> None:
    assert display_value(FieldValue(kind, value)) == shown


def test_bytes_that_are_no_utf8_are_shown_as_they_are() -> None:
    assert encode_reply_text(display_value(FieldValue("S", b"\xff\xfe"))) == b"\xff\xfe"


def test_booleans_are_no_numbers() -> None:
    assert to_term(FieldValue("t", True)) != to_term(FieldValue("I", 1))
    assert to_term(FieldValue("t", True)) != to_term(FieldValue("S", b"true"))


def test_types_count_inside_only() -> None:
    assert to_term(FieldValue("I", 1)) == to_term(FieldValue("l", 1))
    assert table_to_term(table(("a", "I", 1))) != table_to_term(table(("a", "l", 1)))
    assert table_to_term(table(("a", "L", 1))) == table_to_term(table(("a", "l", 1)))


def test_tables_and_arrays_that_hold_the_same_in_another_form_differ() -> None:
    inner = FieldValue("I", 1)
    flat = FieldValue("A", (inner, inner))
    assert to_term(flat) != to_term(FieldValue("A", (inner, FieldValue("A", (inner,)))))
    assert to_term(FieldValue("A", (FieldValue("A", (inner,)), inner))) != to_term(
        FieldValue("A", (FieldValue("A", (inner, inner)),))
    )
    assert table_to_term((("a", flat),)) != table_to_term((("a", FieldValue("F", (("I", inner),))),))


def test_deep_values_are_compared_and_printed_without_a_deep_stack() -> None:
    def nested(bottom: int) -> FieldValue:
        value = FieldValue("I", bottom)
        for _ in range(2_000):
            value = FieldValue("A", (FieldValue("F", (("k", value),)),))
        return value

    assert to_term(nested(1)) == to_term(nested(1))
    assert to_term(nested(1)) != to_term(nested(2))
    assert hash(to_term(nested(1))) == hash(to_term(nested(1)))
    assert format_value(nested(1)).count("table") == 2_000
