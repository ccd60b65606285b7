"""Values of x-stream-filter."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.stream_filter import read_stream_filter, stream_filter_error
from leveret.protocol.field_table import FieldValue, longstr

WRONG = '"expected a string that is not empty, or an array of 1 to 1000 of them"'


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("longstr", b"eu", frozenset((b"eu",))),
        ("array", (longstr("eu"), longstr("us"), longstr("eu")), frozenset((b"eu", b"us"))),
        ("array", (longstr("eu"),) * 1000, frozenset((b"eu",))),
    ],
)
def test_filters(type_name: str, value: Any, expected: frozenset[bytes]) -> None:
    assert read_stream_filter(type_name, value) == expected
    assert stream_filter_error(type_name, value) is None


@pytest.mark.parametrize(
    ("type_name", "value", "error"),
    [
        ("longstr", b"", WRONG),
        ("array", (), WRONG),
        ("array", (longstr("eu"), longstr("")), WRONG),
        ("array", (longstr("eu"), FieldValue("I", 5)), WRONG),
        ("array", (longstr("eu"), FieldValue("x", b"eu")), WRONG),
        ("array", tuple(longstr(str(each)) for each in range(1001)), WRONG),
        ("signedint", 5, "{unacceptable_type,signedint}"),
        ("void", None, "{unacceptable_type,void}"),
    ],
)
def test_refused_filters(type_name: str, value: Any, error: str) -> None:
    assert stream_filter_error(type_name, value) == error
