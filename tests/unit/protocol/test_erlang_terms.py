from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocol.erlang_terms import format_binary, format_float, format_octets


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
    # 0.18; what Erlang's io_lib:format("~p") prints, byte for byte.
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
