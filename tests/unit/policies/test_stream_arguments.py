"""Arguments of streams' consumers: ages, places and filters; and places in requests for ranges."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.stream_arguments import (
    Begin,
    StreamPlace,
    consumer_name_error,
    read_place,
    read_stream_filter,
    read_stream_offset,
    stream_filter_error,
    stream_offset_error,
)
from leveret.policies.value_checks import age_seconds
from leveret.protocol.field_table import FieldValue, longstr

NOON = 1_769_860_800_000_000
WRONG_FILTER = '"expected a string that is not empty, or an array of 1 to 1000 of them"'
WRONG_NAME = '"expected 1 to 255 bytes of UTF-8"'


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
        ("0" * 5000 + "7s", 7),
        ("+1h", None),
        ("1 h", None),
        ("²s", None),
    ],
)
def test_ages(text: str, seconds: int | None) -> None:
    assert age_seconds(text) == seconds


def test_ages_of_any_number_of_digits() -> None:
    assert (age_seconds("9" * 70_000 + "Y") or 0) > 10**4000


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("binary", b"last", StreamPlace(Begin.LAST)),
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
        ("longstr", b"\x01", "{invalid_stream_offset_arg,{longstr,<<1>>}}"),
        ("longstr", "ä".encode(), '{invalid_stream_offset_arg,{longstr,<<"ä">>}}'),
        # Sent as the bytes that came.
        ("longstr", b"\xff\xfe", '{invalid_stream_offset_arg,{longstr,<<"\udcff\udcfe">>}}'),
        ("binary", b"1h", '{invalid_stream_offset_arg,{binary,<<"1h">>}}'),
        ("table", (), "{unacceptable_type,table}"),
    ],
)
def test_what_is_no_place(type_name: str, value: object, refusal: str) -> None:
    assert read_stream_offset(type_name, value) is None
    assert stream_offset_error(type_name, value) == refusal


@pytest.mark.parametrize(
    ("type_name", "value", "refusal"),
    [
        ("longstr", "é".encode() * 127 + b"n", None),
        ("longstr", b"", WRONG_NAME),
        ("longstr", "é".encode() * 128, WRONG_NAME),
        ("longstr", b"\xff", WRONG_NAME),
        ("binary", b"n", "{unacceptable_type,binary}"),
    ],
)
def test_names_of_consumers(type_name: str, value: object, refusal: str | None) -> None:
    assert consumer_name_error(type_name, value) == refusal


@pytest.mark.parametrize(
    ("type_name", "value", "found"),
    [
        ("longstr", b"eu", frozenset((b"eu",))),
        ("array", (longstr("eu"), longstr("us"), longstr("eu")), frozenset((b"eu", b"us"))),
        ("array", (longstr("eu"),) * 1000, frozenset((b"eu",))),
        ("array", (), WRONG_FILTER),
        ("array", (longstr("eu"), longstr("")), WRONG_FILTER),
        ("array", (longstr("eu"), FieldValue("x", b"eu")), WRONG_FILTER),
        ("array", tuple(longstr(str(each)) for each in range(1001)), WRONG_FILTER),
        ("void", None, "{unacceptable_type,void}"),
    ],
)
def test_filters(type_name: str, value: Any, found: frozenset[bytes] | str) -> None:
    error = stream_filter_error(type_name, value)
    assert (error or read_stream_filter(type_name, value)) == found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("first", (Begin.FIRST, 0)),
        ("last", (Begin.LAST, 0)),
        ("next", (Begin.NEXT, 0)),
        (0, (Begin.OFFSET, 0)),
        ("1200", (Begin.OFFSET, 1200)),
        ("@1769860800", (Begin.TIME, NOON)),
        ("2026-01-31T12:00:00Z", (Begin.TIME, NOON)),
        ("2026-01-31T12:00:00", (Begin.TIME, NOON)),
        ("2026-01-31 13:00:00.25+01:00", (Begin.TIME, NOON + 250_000)),
        ("2026-01-31", (Begin.TIME, NOON - 43_200_000_000)),
        ("90m", (Begin.AGE, 5_400_000_000)),
    ],
)
def test_places_of_ranges(value: Any, expected: tuple[Begin, int]) -> None:
    assert read_place("from", value) == StreamPlace(*expected)


@pytest.mark.parametrize(
    "value",
    [
        *("", "First", "-1", "0s", "1h30m", "@", "@1h", "@-5", "2026-13-01", "9" * 5000, "9" * 5000 + "h", "٣", "@²"),
        *(-1, 10**18, True, 1.5, None, []),
    ],
)
def test_what_is_no_place_of_a_range(value: Any) -> None:
    text = r"^to takes first, last, next, an offset such as 1200, a time such as "
    with pytest.raises(ValueError, match=text) as caught:
        read_place("to", value)
    assert str(caught.value).endswith(f"; not {str(value)[:100]}")
