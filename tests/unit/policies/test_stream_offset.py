"""Ages, and the places where consumers of streams begin."""

from __future__ import annotations

import pytest

from leveret.policies.ages import age_seconds
from leveret.policies.stream_offset import (
    Begin,
    StreamPlace,
    consumer_name_error,
    read_stream_offset,
    stream_offset_error,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("01m", 60),
        ("2h", 7200),
        ("1D", 86_400),
        ("1M", 2_592_000),
        ("1Y", 31_536_000),
        ("9" * 20 + "s", 10**20 - 1),
    ],
)
def test_ages(text: str, seconds: int) -> None:
    assert age_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "1", "0s", "00h", "1d", "1w", "1H", "-1h", "+1h", " 1h", "1 h", "1.5h", "1h30m", "²s"]
)
def test_what_is_no_age(text: str) -> None:
    assert age_seconds(text) is None


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("longstr", b"first", StreamPlace(Begin.FIRST)),
        ("binary", b"last", StreamPlace(Begin.LAST)),
        ("longstr", b"next", StreamPlace(Begin.NEXT)),
        ("longstr", b"2m", StreamPlace(Begin.AGE, 120_000_000)),
        ("timestamp", 5, StreamPlace(Begin.TIME, 5_000_000)),
        ("byte", -1, StreamPlace(Begin.OFFSET, -1)),
        ("long", 1 << 40, StreamPlace(Begin.OFFSET, 1 << 40)),
    ],
)
def test_places(type_name: str, value: object, expected: StreamPlace) -> None:
    assert read_stream_offset(type_name, value) == expected
    assert stream_offset_error(type_name, value) is None


@pytest.mark.parametrize(
    ("type_name", "value", "refusal"),
    [
        ("longstr", b"5", '{invalid_stream_offset_arg,{longstr,<<"5">>}}'),
        ("longstr", b"Last", '{invalid_stream_offset_arg,{longstr,<<"Last">>}}'),
        ("longstr", b"\x01", "{invalid_stream_offset_arg,{longstr,<<1>>}}"),
        ("longstr", "ä".encode(), '{invalid_stream_offset_arg,{longstr,<<"ä">>}}'),
        # Sent as the bytes that came.
        ("longstr", b"\xff\xfe", '{invalid_stream_offset_arg,{longstr,<<"\udcff\udcfe">>}}'),
        ("binary", b"1h", '{invalid_stream_offset_arg,{binary,<<"1h">>}}'),
        ("double", 1.5, "{unacceptable_type,double}"),
        ("bool", True, "{unacceptable_type,bool}"),
        ("void", None, "{unacceptable_type,void}"),
        ("table", (), "{unacceptable_type,table}"),
    ],
)
def test_what_is_no_place(type_name: str, value: object, refusal: str) -> None:
    assert read_stream_offset(type_name, value) is None
    assert stream_offset_error(type_name, value) == refusal


def test_ages_of_any_number_of_digits() -> None:
    assert age_seconds("0" * 5000 + "7s") == 7
    assert (age_seconds("9" * 70_000 + "Y") or 0) > 10**4000


@pytest.mark.parametrize(
    ("type_name", "value", "refusal"),
    [
        ("longstr", b"n", None),
        ("longstr", "é".encode() * 127 + b"n", None),
        ("longstr", b"", '"expected 1 to 255 bytes of UTF-8"'),
        ("longstr", "é".encode() * 128, '"expected 1 to 255 bytes of UTF-8"'),
        ("longstr", b"\xff", '"expected 1 to 255 bytes of UTF-8"'),
        ("binary", b"n", "{unacceptable_type,binary}"),
        ("long", 5, "{unacceptable_type,long}"),
    ],
)
def test_names_of_consumers(type_name: str, value: object, refusal: str | None) -> None:
    assert consumer_name_error(type_name, value) == refusal
