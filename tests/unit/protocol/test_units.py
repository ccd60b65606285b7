from __future__ import annotations

import pytest

from leveret.protocol.units import parse_duration, parse_size, whole


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("131072", 131072),
        ("512kB", 512_000),
        ("1GB", 1_000_000_000),
        ("2 TB", 2 * 1000**4),
        ("4KiB", 4096),
        ("64MiB", 64 * 1024**2),
        (" 1.5gib ", 3 * 512 * 1024**2),
        ("7b", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1M", "1 000", "1.0001kB", "0x10", "1e3", "٣", "1MBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "unit", "duration"),
    [
        ("60", "s", 60),
        ("60", "ms", 60),
        ("60S", "ms", 60_000),
        ("2min", "s", 120),
        (" 2 m ", "s", 120),
        ("1d", "h", 24),
        ("2w", "s", 1_209_600),
        ("0.5h", "ms", 1_800_000),
        ("3000ms", "s", 3),
    ],
)
def test_durations(text: str, unit: str, duration: int) -> None:
    assert whole(parse_duration(text, unit)) == duration


@pytest.mark.parametrize(
    ("text", "unit"), [("", "s"), ("500ms", "s"), ("1 day", "s"), ("1M", "s"), ("-1s", "s"), ("m", "ms")]
)
def test_what_is_no_duration(text: str, unit: str) -> None:
    with pytest.raises(ValueError):
        whole(parse_duration(text, unit))
