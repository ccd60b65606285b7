"""Records that are read in bulk, compared with a plain reading of one after the other."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.analytics.columns import TABLES
from leveret.analytics.rows import record_rows
from leveret.analytics.rows.property_slices import binary_slices
from leveret.analytics.rows.record_rows import Gap, RecordRows, find_records, intact_run, select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.message_batches import message_batch
from leveret.analytics.tables.partitions import Label
from leveret.storage.format import (
    EXTENDED,
    INDEX_STEP,
    RECORD_MAGIC,
    SEGMENT_HEADER_BYTES,
    EnvelopeImage,
    Footer,
    SegmentHeader,
    add_record,
    pack_footer,
    pack_segment_header,
    scan,
)
from leveret.storage.message import Envelope
from leveret.storage.snapshots.segments import SegmentView
from tests.support import content

_SALT = 0x5EED5A17
_FIRST = 5
_START = 1_000_000
_ENVELOPES = (
    Envelope(b"\x00\x06orders", content.header(0)),
    Envelope(b"\x01e\x01k", content.header(0, content.properties(priority=3, headers=[("n", "l", 1)])), True, 3),
    Envelope(b"\x00\x01q", content.header(0), expiration_ms=60_000, blind_keys=("a", "bcd")),
    Envelope(b"\x00\x00", content.header(0, content.properties(type="t")), dead=True, delivery_count=2),
)


@dataclass
class _File:
    """A segment file.

    Attributes:
        octets: Its contents.
        seqs, arrivals, offsets: Of its records, as they were written.
        sealed: Whether it has an index and a footer.
    """

    octets: bytearray
    seqs: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sealed: bool = False

    def view(self, live: array[int]) -> SegmentView:
        plain = SegmentView("", "", 1, 0, _SALT, 0, 0, _FIRST, self.seqs[-1] if self.sealed else 1 << 40, False, live)
        if not self.sealed:
            return plain
        return replace(plain, sealed=True, records=len(self.seqs), data_len=self.end)

    @property
    def end(self) -> int:
        """Where index and footer begin, or the file ends."""
        return len(self.octets) - (96 + 4 * -(-len(self.seqs) // INDEX_STEP) if self.sealed else 0)


#: A record: its envelope, body, distance of its number to the last one, and of its time.
_RECORDS = st.lists(
    st.tuples(
        st.sampled_from(_ENVELOPES),
        st.one_of(
            st.integers(0, 40).map(bytes),
            st.binary(max_size=30),
            # A body with what looks like a record, and one with a record.
            st.integers(0, 24).map(lambda size: bytes(size) + RECORD_MAGIC + bytes(60)),
            st.integers(0, 16).map(lambda size: bytes(size) + _record(1 << 30, b"inner")),
        ),
        st.integers(1, 3),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=150,
)
#: Damage: where, as a part of the file, how many bytes, and what is there instead.
_DAMAGE = st.lists(
    st.tuples(st.floats(0, 0.999), st.integers(1, 80), st.sampled_from(["flip", "zero", "cut out", "insert", "end"])),
    max_size=3,
)
_TIMES = st.integers(_START - 5, _START + 300)
_SEQS = st.integers(0, 300)


def _record(seq: int, body: bytes) -> bytes:
    parts: list[bytes] = []
    add_record(parts, EnvelopeImage(_ENVELOPES[0]), seq, _START, 0, body, _SALT)
    return b"".join(parts)


def _write(records: list[tuple[Envelope, bytes, int, int]], sealed: bool) -> _File:
    file = _File(bytearray(pack_segment_header(SegmentHeader(0, 0, 1, 0, _FIRST, _START, bytes(16), _SALT))))
    seq, time, body_bytes = _FIRST - 1, _START, 0
    for envelope, body, numbers, microseconds in records:
        seq, time = seq + numbers, time + microseconds
        file.offsets.append(len(file.octets))
        file.seqs.append(seq)
        file.arrivals.append(time)
        parts: list[bytes] = []
        add_record(parts, EnvelopeImage(envelope), seq, time, time + 9 if len(body) % 2 else 0, body, _SALT)
        file.octets += b"".join(parts)
        body_bytes += len(body)
    if sealed:
        index = b"".join(at.to_bytes(4, "little") for at in file.offsets[::INDEX_STEP])
        length, crc = len(file.octets), crc32(file.octets)
        times = file.arrivals[0], file.arrivals[-1], 0
        footer = Footer(len(records), file.seqs[0], file.seqs[-1], *times, length, body_bytes, crc)
        file.octets += pack_footer(footer, index)
        file.sealed = True
    return file


def _damage(octets: bytearray, damages: list[tuple[float, int, str]]) -> None:
    for place, length, kind in damages:
        at = int(place * len(octets))
        if kind == "flip":
            octets[at : at + 1] = bytes(each ^ length for each in octets[at : at + 1])
        elif kind == "zero":
            octets[at : at + length] = bytes(len(octets[at : at + length]))
        elif kind == "cut out":
            del octets[at : at + length]
        elif kind == "insert":
            octets[at:at] = b"x" * length
        else:
            del octets[at:]


def _plain_gaps(file: _File, octets: bytes, view: SegmentView) -> list[Gap]:
    found = scan(octets, _SALT, _FIRST)
    starts = [*zip(found.offsets, (each.seq for each in found.headers), strict=True)]
    if octets[-96:] == bytes(file.octets[-96:]) and file.sealed:
        starts.append((file.end, file.seqs[-1] + 1))
    elif view.sealed:
        starts.append((view.data_len, view.last_seq + 1))
    gaps, before, end = [], _FIRST - 1, SEGMENT_HEADER_BYTES
    ends = [at + each.rec_len for at, each in zip(found.offsets, found.headers, strict=True)]
    for (at, seq), following in zip(starts, [*ends, 0], strict=False):
        if at > end and seq > before + 1:
            gaps.append(Gap(before, seq, end, at))
        before, end = seq, following
    return gaps


@pytest.fixture(autouse=True, scope="module")
def any_number_at_once() -> Iterator[None]:
    with mock.patch.object(record_rows, "LEAST", 1):
        yield


@given(_RECORDS, st.booleans(), _DAMAGE)
def test_all_intact_records_are_found(
    records: list[tuple[Envelope, bytes, int, int]], sealed: bool, damages: list[tuple[float, int, str]]
) -> None:
    file = _write(records, sealed)
    octets = bytearray(file.octets)
    _damage(octets, damages)
    view = file.view(array("Q", (_FIRST, 1 << 40)))
    found = find_records(bytes(octets), view)
    assert found.positions.tolist() == scan(bytes(octets), _SALT, _FIRST).offsets
    assert found.gaps == _plain_gaps(file, bytes(octets), view)
    assert found.footer is None or bytes(octets) == bytes(file.octets)


@given(_RECORDS, st.booleans(), _DAMAGE, st.lists(_SEQS, max_size=12), _SEQS, _SEQS, _TIMES, _TIMES, _TIMES)
def test_rows_are_those_of_a_plain_reading(
    records: list[tuple[Envelope, bytes, int, int]],
    sealed: bool,
    damages: list[tuple[float, int, str]],
    bounds: list[int],
    first_seq: int,
    last_seq: int,
    first_time: int,
    last_time: int,
    cut: int,
) -> None:
    file = _write(records, sealed)
    octets = bytearray(file.octets)
    _damage(octets, damages)
    live = array("Q", sorted(set(bounds))[: len(set(bounds)) // 2 * 2]) or array("Q", (_FIRST, 1 << 40))
    for limits in (RowLimits(), RowLimits(first_seq, last_seq), RowLimits(0, 1 << 60, first_time, last_time)):
        for ranges in (live, None):
            rows = select_rows(bytes(octets), file.view(live), cut, limits, ranges)
            headers = scan(bytes(octets), _SALT, _FIRST).headers
            expected = [
                (each.seq, each.arrived, each.expires, each.body_len, each.props_len, each.flags)
                for each in headers
                if limits.first_seq <= each.seq <= limits.last_seq
                and limits.first_time <= each.arrived <= min(cut, limits.last_time)
                and (ranges is None or bisect_right(ranges, each.seq) & 1)
            ]
            columns = rows.seq, rows.arrived, rows.expires, rows.body_len, rows.props_len, rows.flags
            assert [*zip(*(each.tolist() for each in columns), strict=True)] == expected
            assert rows.records == sum(each.arrived <= cut for each in headers)
            assert rows.later == len(headers) - rows.records


@given(_RECORDS, st.integers(0, 149), st.integers(0, 3), st.integers(1, 255))
def test_no_damaged_record_is_taken_for_an_intact_one(
    records: list[tuple[Envelope, bytes, int, int]], place: int, word: int, change: int
) -> None:
    file = _write(records, sealed=False)
    octets = bytearray(file.octets)
    at = file.offsets[place % len(records)] + 4 + 8 * word
    octets[at] ^= change
    found = intact_run(bytes(octets), _SALT, _FIRST)
    assert all(each < at - 4 - 8 * word for each in found.positions.tolist())
    assert intact_run(bytes(file.octets), _SALT ^ change, _FIRST).positions.tolist() == []


def test_records_ahead_of_a_torn_one_are_read_at_once() -> None:
    records = [(each, bytes(number), 1, 1) for number in range(60) for each in _ENVELOPES]
    file = _write(records, sealed=False)
    for octets in (file.octets, file.octets + bytes(500), file.octets[:-9], file.octets + _record(1, b"older")):
        found = intact_run(bytes(octets), _SALT, _FIRST)
        whole = len(file.offsets) - (len(octets) < len(file.octets))
        assert found.positions.tolist() == file.offsets[:whole]
        assert (found.last_seq, found.end) == (file.seqs[whole - 1], [*file.offsets, file.end][whole])
    # Some of them have an extension, which the checksum is of, too.
    assert any(each.flags & EXTENDED for each in scan(bytes(file.octets), _SALT, _FIRST).headers)


_STRINGS = st.sampled_from(["", "a", "text/plain", "ä" * 20])
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("content_type", "correlation_id", "message_id", "type", "cluster_id"), _STRINGS),
        "headers": st.just([("n", "l", 5), ("x", "S", "y")]),
        "priority": st.integers(0, 255),
        "delivery_mode": st.integers(1, 2),
        "timestamp": st.integers(0, (1 << 64) - 1),
    },
)


@given(
    st.lists(st.tuples(_PROPERTIES, st.integers(0, 3)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
@example([({}, 0)], [0, 0])
@example([({"priority": 1}, 0), ({"priority": 2, "type": "a"}, 1)], [0, 1, 1])
def test_rows_together_have_the_columns_of_each_alone(
    headers: list[tuple[dict[str, Any], int]], which: list[int]
) -> None:
    envelopes = []
    for given_properties, lost in headers:
        encoded = content.header(0, content.properties(**given_properties))
        # What is lost at the end makes a header malformed.
        envelopes.append(Envelope(b"\x01e\x01k", encoded[: max(14, len(encoded) - lost)]))
    file = _write([(envelopes[each % len(envelopes)], bytes(each), 1, 1) for each in which], sealed=True)
    view = file.view(array("Q", (_FIRST, 1 << 40)))
    columns = list(TABLES["messages"])

    def batch(rows: RecordRows) -> pa.RecordBatch:
        return message_batch(rows, view, columns, Label("/", "q"), array("Q", (6, 8)))

    rows = select_rows(bytes(file.octets), view, _START + 1000, RowLimits(), view.live)
    alone = [batch(replace(rows, at=rows.at[each : each + 1])) for each in range(len(which))]
    together = batch(rows)
    together.validate(full=True)
    assert together.to_pylist() == [row for each in alone for row in each.to_pylist()]
    assert together.schema == alone[0].schema


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=200))
def test_slices_of_a_file(pieces: list[tuple[int, int, bool]]) -> None:
    octets = bytes(number % 251 for number in range(2100))
    starts, ends, at = [], [], 0
    for space, length, _ in pieces:
        starts.append(at + space)
        ends.append(at := at + space + length)
    valid = [each for _, _, each in pieces]
    first, last = np.array(starts, np.int64), np.array(ends, np.int64)
    found = binary_slices(octets, first, last, np.array(valid, np.bool_))
    found.validate(full=True)
    expected = [octets[start:end] if kept else None for start, end, kept in zip(starts, ends, valid, strict=True)]
    assert found.to_pylist() == expected
    assert binary_slices(octets, first, last).to_pylist() == [octets[a:b] for a, b in zip(starts, ends, strict=True)]
