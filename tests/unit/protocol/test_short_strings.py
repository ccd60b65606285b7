from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocol.short_strings import decode_utf8


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_read_as_python_reads_it(text: str) -> None:
    assert decode_utf8(text.encode()) == text


@pytest.mark.parametrize(
    "octets",
    [
        # Surrogates, and code points above U+10FFFF: Erlang's check counts bits only.
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"a\xed\xa0\x80b\xc3\xa4",
    ],
)
def test_what_only_erlang_takes_is_kept(octets: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        octets.decode()
    assert decode_utf8(octets).encode("utf-8", "surrogateescape") == octets


@pytest.mark.parametrize(
    "octets",
    [
        b"\x80",
        b"\xbf",
        b"\xff",
        b"\xfe",
        b"\xf8\x88\x80\x80\x80",
        b"\xc3",
        b"\xc3a",
        b"\xe2\x82",
        b"\xe2\x82a",
        b"\xf0\x9f\x98",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x80\x80",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"ok\xed\xa0\x80\xff",
    ],
)
def test_what_is_broken_or_overlong_is_refused(octets: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_utf8(octets)


@given(st.binary(max_size=12))
def test_any_bytes_come_back_or_are_refused(octets: bytes) -> None:
    try:
        text = decode_utf8(octets)
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            octets.decode()
    else:
        assert text.encode("utf-8", "surrogateescape") == octets
