from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.archive.layout import (
    DRAFT,
    data_path,
    date_of,
    is_broker_name,
    is_store_id,
    manifest_path,
    parse_data_name,
    parse_manifest_name,
)

BROKERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
NUMBERS = st.integers(1, 10**12 - 1)


@given(BROKERS, NUMBERS, st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(["messages", "events"]))
def test_a_data_file_says_of_whom_it_is(broker: str, number: int, time: int, table: str) -> None:
    assert is_broker_name(broker)
    path = data_path(table, date_of(time), broker, number)
    first, second, name = PurePosixPath(path).parts
    assert (first, second) == (table, f"date={date_of(time)}")
    assert parse_data_name(path) == parse_data_name(name + DRAFT) == (broker, number)
    assert data_path(table, date_of(time), broker, number) != path


@given(st.text())
def test_other_names_are_no_brokers(name: str) -> None:
    fits = name.isascii() and name[:1].isalnum() and len(name) <= 64
    assert is_broker_name(name) == (fits and all(each.isalnum() or each in "_.-" for each in name))
    assert parse_data_name(name) is None


@given(NUMBERS)
def test_manifests_are_ordered_by_their_names(number: int) -> None:
    path = manifest_path("0" * 32, number)
    assert path.rpartition("/")[0] == f"manifests/{'0' * 32}"
    assert parse_manifest_name(path.rpartition("/")[2]) == number
    assert path < manifest_path("0" * 32, number + 1) or number == 10**12 - 1


@given(st.datetimes(timezones=st.just(UTC)))
def test_dates_are_those_of_utc(moment: datetime) -> None:
    since = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert date_of(since) == moment.date().isoformat()


@pytest.mark.parametrize(("time", "date"), [(-(1 << 63), "0001-01-01"), ((1 << 63) - 1, "9999-12-31")])
def test_times_that_no_calendar_has(time: int, date: str) -> None:
    assert date_of(time) == date


def test_names_of_other_files() -> None:
    assert parse_manifest_name("000000000001.json.ab.tmp") is None
    assert parse_manifest_name("1.json") is None
    assert is_store_id("0f" * 16)
    assert not is_store_id("0F" * 16)
    assert not is_store_id("0f" * 15)
