"""How offsets say the next numbers of many queues."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from typing import Any
from zlib import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.tables.chains import (
    NextNumbers,
    all_numbers,
    numbers_in,
    pack_rows,
    unpack_rows,
    unread_in,
    unread_to_json,
)

NUMBERS = st.integers(0, (1 << 63) - 2)
KEYS = st.builds(
    lambda qid, priority, spill: f"{qid}/{priority}{spill}",
    st.integers(1, 300),
    st.sampled_from([0, 1, 255]),
    st.sampled_from(["", "/spill"]),
)


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def text_of(numbers: NextNumbers) -> str:
    return json.dumps(numbers.to_json())


@given(st.integers(1, 5).flatmap(lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=1)))
def test_rows_come_back(rows: list[list[int]]) -> None:
    rows.sort()
    assert unpack_rows(pack_rows(rows), len(rows[0])) == rows


@given(st.lists(st.dictionaries(KEYS, NUMBERS, max_size=80), max_size=12))
def test_numbers_are_those_that_were_set_last(updates: list[dict[str, int]]) -> None:
    expected: dict[str, int] = {}
    numbers = all_numbers({})
    for each in updates:
        expected.update(each)
        before = dict(numbers)
        later = numbers.changed(each, lambda _: True)
        assert dict(numbers) == before, "an offset does not change"
        numbers = numbers_in(stored(later.to_json()))
        assert dict(numbers) == expected
        assert len(numbers) == len(expected)
        assert numbers == later
        assert later == all_numbers(expected)
        assert all((key in numbers) == (key in expected) for key in ("1/0", "300/255/spill", "301/0"))
        assert numbers.get("301/0", 7) == 7


def test_few_numbers_are_written_out() -> None:
    assert all_numbers({"1/0": 5, "1/0/spill": 1}).to_json() == {"next": {"1/0": 5, "1/0/spill": 1}}


def test_offsets_of_older_versions_are_read() -> None:
    old = {f"{qid}/0": qid * 1000 for qid in range(1, 3001)}
    numbers = numbers_in({"snapshot": "", "next": old, "unread": {"7/0": [9, 2]}})
    assert dict(numbers) == old
    assert dict(numbers.changed({"5/0": 1, "5/0/spill": 2}, lambda _: True)) == old | {"5/0": 1, "5/0/spill": 2}
    assert unread_in({"unread": {"7/0": [9, 2]}}) == {"7/0": [9, 2]}
    assert unread_in({}) == {}


def test_a_change_is_added_to_the_same_base() -> None:
    rng = random.Random(2)
    all_of_them = {f"{qid}/0{spill}": rng.randrange(1, 1 << 20) for qid in range(1, 3001) for spill in ("", "/spill")}
    numbers = all_numbers(all_of_them)
    assert numbers.to_json()["changed"] == {}
    later = numbers.changed({"1500/0": 17, "4000/0": 3}, lambda _: True)
    assert later.to_json() == numbers.to_json() | {"changed": {"1500/0": 17, "4000/0": 3}}
    # What is as before needs no mention.
    back = later.changed({"1500/0": all_of_them["1500/0"]}, lambda _: True)
    assert back.to_json() == numbers.to_json() | {"changed": {"4000/0": 3}}


def test_an_offset_has_a_few_bytes_for_each_queue_however_many_batches_there_were() -> None:
    rng = random.Random(3)
    numbers = all_numbers({f"{qid}/0": rng.randrange(1, 1 << 20) for qid in range(1, 3001)})
    longest = len(text_of(numbers))
    assert longest < 3000 * 5
    for _ in range(300):
        numbers = numbers.changed(
            {f"{qid}/0": rng.randrange(1, 1 << 20) for qid in rng.choices(range(1, 3001), k=20)}, bool
        )
        longest = max(longest, len(text_of(numbers)))
    assert longest < 3000 * 10


def test_what_nothing_is_left_of_goes_with_the_next_base() -> None:
    numbers = all_numbers({f"{qid}/0": qid for qid in range(1, 1001)})
    changed = numbers.changed({f"{qid}/0": 5 for qid in range(1, 500)}, lambda qid: qid > 400)
    assert dict(changed) == {f"{qid}/0": 5 if qid < 500 else qid for qid in range(401, 1001)}
    # So few are written out again.
    few = numbers.changed({f"{qid}/0": 5 for qid in range(1, 500)}, lambda qid: qid > 990)
    assert few.to_json() == {"next": {f"{qid}/0": qid for qid in range(991, 1001)}}


@given(
    st.dictionaries(st.builds(lambda qid: f"{qid}/0", st.integers(1, 400)), st.tuples(NUMBERS, NUMBERS), max_size=300)
)
def test_what_was_left_comes_back(pairs: dict[str, tuple[int, int]]) -> None:
    unread = {key: list(pair) for key, pair in pairs.items()}
    assert unread_in(stored(unread_to_json(unread))) == unread


def test_what_was_left_of_many_queues_is_a_short_text() -> None:
    assert unread_to_json({"1/0": [31, 20]}) == {"unread": {"1/0": [31, 20]}}
    rng = random.Random(4)
    many = {f"{qid}/0": [rng.randrange(1, 1 << 20), rng.randrange(1000)] for qid in range(1, 3001)}
    assert len(json.dumps(unread_to_json(many))) < 3000 * 8


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1234",
        b64encode(b"plain").decode(),
        b64encode(compress(b"")).decode(),
        b64encode(compress(b"\1")).decode(),
        b64encode(compress(b"\1\4")).decode(),
        b64encode(compress(b"\1\4" + bytes(33))).decode(),
        b64encode(compress(b"\1\3" + bytes(32))).decode(),
        "é",
    ],
)
def test_damaged_offsets_are_told(text: str) -> None:
    with pytest.raises(AnalyticsError, match="the offset in the checkpoint is damaged: restore"):
        numbers_in({"base": text, "changed": {}})


def test_offsets_of_newer_versions_are_told() -> None:
    with pytest.raises(AnalyticsError, match="written by a newer version of Leveret"):
        unread_in({"unread": b64encode(compress(b"\2\4" + bytes(32))).decode()})
