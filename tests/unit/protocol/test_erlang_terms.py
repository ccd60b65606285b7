from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocol.erlang_terms import (
    format_atom,
    format_binary,
    format_float,
    format_json,
    format_number,
    format_octets,
    format_string,
    format_tuple,
    format_unicode,
)


@pytest.mark.parametrize(
    ("octets", "printed"),
    [
        (b"", b"<<>>"),
        (b"abc", b'<<"abc">>'),
        (b" ~", b'<<" ~">>'),
        (b"\x00\x14\x00\x0a\x00", b"<<0,20,0,10,0>>"),
        (b"a\x00", b"<<97,0>>"),
        (b"\x7f", b"<<127>>"),
        (b"\x9f", b"<<159>>"),
        (b"\xa0\xff", b'<<"\xa0\xff">>'),
        (b"\xc3\xa9", b'<<"\xc3\xa9">>'),
        (b"\xc3\x84", b"<<195,132>>"),
        (b'"\\', b'<<"\\"\\\\">>'),
        (b"\b\t\n\v\f\r\x1b", b'<<"\\b\\t\\n\\v\\f\\r\\e">>'),
        (b"\x07", b"<<7>>"),
    ],
)
def test_binaries(octets: bytes, printed: bytes) -> None:
    # What Erlang's io_lib:format("~p") prints, byte for byte.
    assert format_binary(octets).encode("utf-8", "surrogateescape") == printed


@given(st.binary(max_size=40))
def test_a_binary_is_printed_as_text_or_as_numbers(octets: bytes) -> None:
    printed = format_binary(octets)
    assert printed.startswith("<<")
    assert printed.endswith(">>")
    numbers = "<<" + ",".join(str(octet) for octet in octets) + ">>"
    assert format_octets(octets) == numbers
    assert printed == numbers or printed[2] == printed[-3] == '"'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (-5, "-5"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1e20, "1.0e20"),
        (1.5e300, "1.5e300"),
        (1e-7, "1.0e-7"),
        (1000.0, "1.0e3"),
    ],
)
def test_numbers(value: float, expected: str) -> None:
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", '"a"'), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"'), ("a\nb\t", '"a\\nb\\t"'), ("ж", '"ж"'), ("\x1b", '"\\e"')],
)
def test_strings(text: str, expected: str) -> None:
    assert format_string(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("abc", "abc"), ("a@b_1", "a@b_1"), ("Abc", "'Abc'"), ("a-b", "'a-b'"), ("", "''")]
)
def test_atoms(text: str, expected: str) -> None:
    assert format_atom(text) == expected


def test_unicode_binaries() -> None:
    assert (format_unicode("é"), format_unicode("ж"), format_unicode("")) == ('<<"é"/utf8>>', '<<"ж"/utf8>>', "<<>>")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (False, "false"),
        (-3, "-3"),
        (1e20, "1.0e20"),
        ("é", '<<"é">>'),
        ("Ä", "<<195,132>>"),
        ("", "<<>>"),
        ([1, "a"], '[1,<<"a">>]'),
        ({"a": {"b": []}}, '#{<<"a">> => #{<<"b">> => []}}'),
    ],
)
def test_json_values(value: object, expected: str) -> None:
    assert format_json(value) == expected


def test_tuples() -> None:
    assert format_tuple("a", "1") == "{a,1}"
    assert format_tuple() == "{}"


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (1e22, "1.0e22"),
        (1e-7, "1.0e-7"),
        (1.5e300, "1.5e300"),
        (5e-324, "5.0e-324"),
        (123456.789, "123456.789"),
    ],
)
def test_floats(number: float, printed: str) -> None:
    assert format_float(number) == printed


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back_and_have_a_fraction(number: float) -> None:
    printed = format_float(number)
    assert struct.pack(">d", float(printed)) == struct.pack(">d", number)
    assert "." in printed
    assert "+" not in printed


@given(st.text())
def test_quotes_cannot_be_left(text: str) -> None:
    inner = format_string(text)[1:-1]
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
