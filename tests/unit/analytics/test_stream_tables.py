"""Streams in the tables of Spark: their messages while they are there, and what retention has removed."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

import leveret
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.option_values import EARLIEST, LATEST, OffsetPlace, PlaceKind, parse_place
from leveret.analytics.options import parse_options
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_reading import read_partition
from leveret.storage.engine import EngineOptions
from leveret.storage.stores.stream_store import StreamStore
from tests.spark.directories import DirectoryBuilder, rows_of_table


class StreamDirectory(DirectoryBuilder):
    """A data directory with the stream `log` in the virtual host `shop`; its segments have about 1000 bytes."""

    def __init__(self, path: Path) -> None:
        # What was deleted is gone at once.
        super().__init__(path, EngineOptions(segment_bytes=1000, trash_bytes=1, ballast_bytes=0))
        attributes = {"vhost": "shop", "name": "log", "persists_transient": True, "stream_segment_bytes": 1000}
        self.log = self.store(self.engine.create_queue(True, attributes))
        self.stream = StreamStore(self.log, 1000)

    def write(self, count: int) -> None:
        """Publish messages, each a tick after the other, with their offsets as bodies."""
        for number in range(self.log.next_seq - 1, self.log.next_seq - 1 + count):
            self.publish(self.log, [b"%d" % number])
            self.tick()


def test_messages_and_events(tmp_path: Path) -> None:
    builder = StreamDirectory(tmp_path)
    stream = builder.stream
    builder.write(30)
    removed = stream.retain(1500, None).messages
    for _ in range(3):
        builder.tick()
    assert 5 < removed < 29
    rows = rows_of_table(tmp_path, "messages")
    assert [(row["queue"], row["stream_offset"]) for row in rows] == [("log", number) for number in range(removed, 30)]
    assert all(row["seq"] == row["stream_offset"] + 1 for row in rows)
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(removed, 30)]
    events = [(row["queue"], row["kind"], row["messages"]) for row in rows_of_table(tmp_path, "events")]
    assert events == [("log", "retention", removed)]
    assert [row["messages"] for row in rows_of_table(tmp_path, "queues")] == [30 - removed]


def test_events_are_of_messages_only(tmp_path: Path) -> None:
    """A deleted stream takes along the places of its consumers, an exchange its remembered values: no messages."""
    builder = StreamDirectory(tmp_path)
    builder.write(2)
    others = [{"vhost": "shop", "offsets": "log"}, {"vhost": "shop", "deduplication": "once"}]
    for attributes in others:
        builder.publish(builder.store(builder.engine.create_queue(True, attributes)), [b"1", b"2"])
    for queue in list(builder.engine.queues.values()):
        builder.engine.delete_queue(queue)
    for _ in range(3):
        builder.tick()
    for options in ({}, {"vhost": "shop"}):
        events = [(row["queue"], row["kind"], row["messages"]) for row in rows_of_table(tmp_path, "events", **options)]
        assert events == [("log", "queue_deleted", 2)]


def time_of(path: Path, offset: int) -> str:
    """When the message with an offset has arrived, in ISO 8601."""
    (found,) = [row["enqueued_at"] for row in rows_of_table(path, "messages") if row["stream_offset"] == offset]
    assert isinstance(found, datetime)
    return found.astimezone(UTC).isoformat()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("0", OffsetPlace(PlaceKind.OFFSET, 1)),
        ("1200", OffsetPlace(PlaceKind.OFFSET, 1201)),
        ("@1.5", OffsetPlace(PlaceKind.TIME, 1_500_000)),
        ("1970-01-01T00:00:02Z", OffsetPlace(PlaceKind.TIME, 2_000_000)),
    ],
)
def test_places(text: str, place: OffsetPlace) -> None:
    assert parse_place("startingOffsets", text) == place


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "+3", "@", "9" * 19, '{"log": 5}'])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(OptionError, match="option 'startingOffsets' takes earliest, latest, an offset such as 1200"):
        parse_place("startingOffsets", text)


def test_a_range_of_a_stream(tmp_path: Path) -> None:
    builder = StreamDirectory(tmp_path)
    builder.write(30)

    def found(**options: str) -> list[int]:
        return [row["stream_offset"] for row in rows_of_table(tmp_path, "messages", queue="log", **options)]

    assert found(startingoffsets="7", endingoffsets="11") == [7, 8, 9, 10]
    assert found(startingoffsets="27") == [27, 28, 29]
    assert found(endingoffsets="2") == [0, 1]
    assert found(startingoffsets="12", endingoffsets="12") == []
    assert found(startingoffsets=time_of(tmp_path, 20), endingoffsets=time_of(tmp_path, 22)) == [20, 21]
    assert found(startingoffsets="3", endingoffsets="20", firstseq="15", lastseq="17") == [14, 15, 16]
    scanned = leveret.scan(tmp_path, queue="log", columns=["stream_offset"], starting_offsets=4, ending_offsets=6)
    assert scanned.read_all().column(0).to_pylist() == [4, 5]
    for wrong in ({"startingoffsets": "latest"}, {"endingoffsets": "earliest"}):
        with pytest.raises(OptionError, match="startingOffsets=latest is for streaming queries"):
            found(**wrong)


def test_queues_have_no_offsets(tmp_path: Path) -> None:
    builder = StreamDirectory(tmp_path)
    builder.write(3)
    builder.publish(builder.store(builder.queue("work")), [b"a"])
    builder.tick()
    assert [row["stream_offset"] for row in rows_of_table(tmp_path, "messages", queue="work")] == [None]
    for options in ({"queue": "work"}, {}):
        with pytest.raises(AnalyticsError, match="are for streams, and queue 'work' in virtual host '/' is none"):
            rows_of_table(tmp_path, "messages", startingoffsets="1", **options)
    with pytest.raises(AnalyticsError, match="is none"):
        MessageStream(parse_options({"path": str(tmp_path), "startingoffsets": "1"})).first()


class Query:
    """A streaming query over the stream, as Spark runs it."""

    def __init__(self, path: Path, **options: str) -> None:
        self.source = MessageStream(parse_options({"path": str(path), "queue": "log", **options}).for_stream())
        self.position = self.source.first()

    def batch(self, limit: int = 0) -> list[int]:
        """Read a batch; return the offsets of its messages."""
        # As Spark keeps it.
        end = json.loads(json.dumps(self.source.advance(self.position, limit)))
        found: list[int] = []
        for partition in self.source.partitions(self.position, end):
            for rows in read_partition(partition, "messages", ["stream_offset"], fail_fast=True):
                found += rows.column(0).to_pylist()
        self.position = end
        return found


def test_the_checkpoint_has_the_offsets(tmp_path: Path) -> None:
    builder = StreamDirectory(tmp_path)
    builder.write(10)
    query = Query(tmp_path)
    assert query.batch(4) == [0, 1, 2, 3]
    assert query.position["offsets"] == {"shop": {"log": 4}}
    assert query.batch() == [4, 5, 6, 7, 8, 9]
    assert query.position["offsets"] == {"shop": {"log": 10}}
    before = query.position
    assert query.batch() == []
    assert query.position == before


def test_where_a_streaming_query_starts(tmp_path: Path) -> None:
    builder = StreamDirectory(tmp_path)
    builder.write(20)
    places = {"latest": [20, 21], "17": [17, 18, 19, 20, 21], "30": [], time_of(tmp_path, 18): [18, 19, 20, 21]}
    queries = {place: Query(tmp_path, startingoffsets=place) for place in places}
    assert queries["17"].position["offsets"] == {"shop": {"log": 17}}
    builder.write(2)
    assert {place: query.batch() for place, query in queries.items()} == places


def test_a_query_knows_what_it_has_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamDirectory(tmp_path)
    builder.write(10)
    strict, lenient = Query(tmp_path), Query(tmp_path, failondataloss="false")
    for query in (strict, lenient):
        assert query.batch() == list(range(10))
        query.source.commit(query.position)
    builder.write(60)
    assert builder.stream.retain(1500, None).messages
    for _ in range(3):
        builder.tick()
        builder.engine.housekeeping()
    first = builder.stream.first_number - 1
    assert first > 12
    gone = f"offsets 10 to {first - 1} of stream 'log' are not there any more, and the query has not read them"
    with pytest.raises(AnalyticsError, match=gone):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == list(range(first, 70))
    assert gone in caplog.text


def test_streaming_queries_have_no_end(tmp_path: Path) -> None:
    StreamDirectory(tmp_path).write(1)
    with pytest.raises(OptionError, match="endingOffsets and limit do not apply to streaming queries"):
        Query(tmp_path, endingoffsets="5")
    with pytest.raises(OptionError, match="startingOffsets of table events is earliest or latest"):
        parse_options({"path": str(tmp_path), "table": "events", "startingoffsets": "5"}).for_stream()
