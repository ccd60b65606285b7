from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.stream_offset import Begin, StreamPlace
from leveret.policies.stream_range import read_place

NOON = 1_769_860_800_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("first", (Begin.FIRST, 0)),
        ("last", (Begin.LAST, 0)),
        ("next", (Begin.NEXT, 0)),
        (0, (Begin.OFFSET, 0)),
        (1200, (Begin.OFFSET, 1200)),
        ("1200", (Begin.OFFSET, 1200)),
        ("@1769860800", (Begin.TIME, NOON)),
        ("2026-01-31T12:00:00Z", (Begin.TIME, NOON)),
        ("2026-01-31T12:00:00", (Begin.TIME, NOON)),
        ("2026-01-31 13:00:00.25+01:00", (Begin.TIME, NOON + 250_000)),
        ("2026-01-31", (Begin.TIME, NOON - 43_200_000_000)),
        ("90m", (Begin.AGE, 5_400_000_000)),
        ("7D", (Begin.AGE, 604_800_000_000)),
    ],
)
def test_places(value: Any, expected: tuple[Begin, int]) -> None:
    assert read_place("from", value) == StreamPlace(*expected)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "First",
            "-1",
            "0s",
            "1x",
            "1h30m",
            "@",
            "@1h",
            "@-5",
            "2026-13-01",
            "9" * 5000,
            "9" * 5000 + "h",
            "٣",
            "@²",
        ),
        *(-1, 10**18, True, 1.5, None, []),
    ],
)
def test_what_is_no_place(value: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^to takes first, last, next, an offset such as 1200, a time such as "
    ) as caught:
        read_place("to", value)
    assert str(caught.value).endswith(f"; not {str(value)[:100]}")
