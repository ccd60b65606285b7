"""What the sink for Spark publishes to a broker. Without Spark: its tasks are called with record batches."""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.analytics.sink.connection import SinkError
from leveret.analytics.sink.outcome import Written, add_written, read_written
from leveret.analytics.sink.published_rows import row_layout
from leveret.analytics.sink.sink_options import parse_sink_options
from leveret.analytics.sink.writer import ExchangeCheck, LeveretStreamWriter, LeveretWriter, Sink, TaskResult
from tests.conformance.topology import drain
from tests.integration.certificates import Authority
from tests.integration.program import running
from tests.integration.threaded_broker import ThreadedBroker
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Channel, Connection

TEXT = {"body": "string", "routing_key": "string", "key": "bigint"}
UNKNOWN = ExchangeCheck(())


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url) as opened:
        channel = opened.channel()
        yield channel
        for name in ("q", "full"):
            channel.queue_delete(name)
        for name in ("x", "once"):
            channel.exchange_delete(name)


@pytest.fixture
def session(tmp_path: Path) -> str:
    directory = tmp_path / "session"
    directory.mkdir()
    return str(directory)


def make_sink(process: LeveretProcess, session: str = "", types: dict[str, str] | None = None, **options: Any) -> Sink:
    given = {"url": process.url, "exchange": "", "managementUrl": process.http_url, **options}
    parsed = parse_sink_options(given)
    # As Spark does.
    sink: Sink = pickle.loads(pickle.dumps(Sink(parsed, row_layout(types or TEXT, parsed.routing_key), session)))
    return sink


def batch(count: int, routing_key: str = "q", first: int = 0, size: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    bodies = [f"{number:06}{'x' * size}" for number in numbers]
    return pa.RecordBatch.from_pydict({"body": bodies, "routing_key": [routing_key] * count, "key": [*numbers]})


def write(sink: Sink, *batches: pa.RecordBatch) -> TaskResult:
    result: TaskResult = pickle.loads(pickle.dumps(sink.write(iter(batches))))
    return result


def bodies(channel: Channel, queue: str = "q") -> list[str]:
    return [body.decode() for body in drain(channel, queue)]


class TestPublishing:
    def test_rows_are_messages_in_order(self, process: LeveretProcess, channel: Channel) -> None:
        channel.queue_declare("q", durable=True)
        result = write(make_sink(process), batch(3000), batch(0), batch(2000, first=3000))
        assert result == TaskResult(5000, {}, {}, "")
        assert bodies(channel) == [f"{number:06}" for number in range(5000)]

    def test_properties_and_headers(self, process: LeveretProcess, channel: Channel) -> None:
        channel.queue_declare("q")
        types = {"body": "binary", "message_id": "string", "headers": "map<string,string>", "key": "string"}
        rows = {
            "body": pa.array([b"\xff"]),
            "message_id": pa.array(["m"]),
            "headers": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
            "key": pa.array(["k"]),
        }
        write(make_sink(process, types=types, routingKey="q"), pa.RecordBatch.from_pydict(rows))
        got = channel.get("q", no_ack=True)
        assert got is not None
        assert (got.body, got.properties["message_id"], got.properties["delivery_mode"]) == (b"\xff", "m", 2)
        assert got.properties["headers"] == [("a", "S", "b"), ("x-deduplication-header", "S", "k")]

    def test_bodies_longer_than_a_frame(self, process: LeveretProcess, channel: Channel) -> None:
        channel.queue_declare("q")
        assert write(make_sink(process), batch(8, size=3_000_000)).failures == {}
        assert [len(body) for body in bodies(channel)] == [3_000_006] * 8

    def test_a_task_without_rows_opens_no_connection(self, process: LeveretProcess) -> None:
        nowhere = make_sink(process, url="amqp://127.0.0.1:1")
        assert write(nowhere, batch(0)) == write(nowhere) == TaskResult()

    def test_what_is_published_twice_is_there_once(self, process: LeveretProcess, channel: Channel) -> None:
        arguments = [("x-cache-size", "I", 1000), ("x-cache-persistence", "S", "disk")]
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
        channel.queue_declare("q")
        channel.queue_bind("q", "once", "")
        sink = make_sink(process, exchange="once")
        assert sink.check() == ExchangeCheck((), 1000)
        write(sink, batch(10))
        assert write(sink, batch(20)).failures == {}
        assert bodies(channel) == [f"{number:06}" for number in range(20)]


class TestFailures:
    def test_rows_that_are_not_taken_are_counted(
        self, process: LeveretProcess, channel: Channel, session: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        channel.queue_declare("q")
        channel.queue_declare("full", arguments=[("x-max-length", "I", 5), ("x-overflow", "S", "reject-publish")])
        sink = make_sink(process, session, onFailure="count")
        result = write(sink, batch(10), batch(7, "nowhere"), batch(8, "full"), batch(2, "k" * 256))
        assert result.failures == {"unroutable": 7, "refused": 3, "invalid": 2}
        with caplog.at_level(logging.WARNING, "leveret.analytics"):
            sink.commit([result, write(sink, batch(3)), None], UNKNOWN)
        assert "12 of 30 rows were not taken: 7 unroutable (no queue is bound for it), 3 refused" in caplog.text
        assert "2 invalid (routing_key has 256 bytes, 255 are allowed)" in caplog.text
        written = read_written(session)
        assert written[:4] == (30, 3, 7, 2)
        assert written.confirmed == 18
        assert len(bodies(channel)) == 13

    def test_they_fail_the_query_by_default(self, process: LeveretProcess, channel: Channel, session: str) -> None:
        channel.queue_declare("q")
        sink = make_sink(process, session)
        result = write(sink, batch(2), batch(1, "nowhere"))
        with pytest.raises(SinkError, match=r"^1 of 3 rows were not taken: 1 unroutable .*failurePath goes on without"):
            LeveretWriter(sink, UNKNOWN).commit([result])
        assert read_written(session).unroutable == 1
        assert len(bodies(channel)) == 2, "the others are there"

    def test_or_go_to_a_path(self, process: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
        channel.queue_declare("q")
        directory = tmp_path / "failures"
        sink = make_sink(process, failurePath=str(directory))
        results = [write(sink, batch(5), batch(4, "nowhere", 100), batch(1, "k" * 256)), write(sink, batch(1))]
        assert [each.name for each in directory.iterdir() if each.name[0] != "."] == []
        LeveretWriter(sink, UNKNOWN).commit([*results])
        found = pq.read_table(directory).to_pylist()
        assert [(row["body"], row["routing_key"][:7], row["failure"]) for row in found] == [
            ("000000", "k" * 7, "invalid"),
            *[(f"{number:06}", "nowhere", "unroutable") for number in range(100, 104)],
        ]
        assert found[1]["failure_reason"] == "no queue is bound for it"

    def test_very_many(self, process: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
        sink = make_sink(process, failurePath=(tmp_path / "failures").as_uri())
        result = write(sink, *[batch(10_000, "nowhere", at) for at in range(0, 30_000, 10_000)])
        LeveretWriter(sink, UNKNOWN).commit([result])
        rows = pq.read_table(tmp_path / "failures")
        assert sorted(rows["key"].to_pylist()) == [*range(30_000)]

    def test_a_query_that_fails_leaves_no_file(self, process: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
        sink = make_sink(process, failurePath=str(tmp_path / "failures"))
        LeveretStreamWriter(sink, UNKNOWN).abort([write(sink, batch(4, "nowhere")), None], 0)
        refused = make_sink(process, exchange="missing", failurePath=str(tmp_path / "failures"))
        with pytest.raises(SinkError, match="404 NOT_FOUND - no exchange 'missing'"):
            write(refused, batch(20_000, "k" * 256), batch(1))
        assert [*(tmp_path / "failures").iterdir()] == []

    def test_returned_messages_are_told_apart(self, process: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
        """Those with equal keys and bodies differ in a header, by which one of them has a queue."""
        channel.exchange_declare("x", "headers")
        channel.queue_declare("q")
        channel.queue_bind("q", "x", "", arguments=[("a", "S", "1")])
        values = ["2", "1", "3", "1", "1", "4", "2"]
        strings = pa.map_(pa.string(), pa.string())
        types = {"body": "string", "headers": "map<string,string>"}
        rows = {"body": ["same"] * 7, "headers": pa.array([[("a", value)] for value in values], strings)}
        sink = make_sink(process, types=types, exchange="x", failurePath=str(tmp_path / "failures"))
        LeveretWriter(sink, UNKNOWN).commit([write(sink, pa.RecordBatch.from_pydict(rows))])
        found = pq.read_table(tmp_path / "failures").to_pylist()
        assert sorted(dict(row["headers"])["a"] for row in found) == ["2", "2", "3", "4"]

    def test_properties_that_do_not_fit_into_a_frame(self, process: LeveretProcess, channel: Channel) -> None:
        """A frame of RabbitMQ has 131,072 bytes; a broker ends the connection if the header needs more."""
        channel.queue_declare("q")
        types = {"body": "string", "headers_json": "string"}
        texts = [f'{{"a": "{"x" * size}"}}' for size in (131_000, 131_100)]
        rows = pa.RecordBatch.from_pydict({"body": ["a", "b"], "headers_json": texts})
        result = write(make_sink(process, types=types, routingKey="q", onFailure="count"), rows)
        assert result.failures == {"invalid": 1}
        assert result.reasons == {"invalid": "its properties have 131126 bytes, 131064 are allowed"}
        assert bodies(channel) == ["a"]

    def test_large_rows_do_not_pile_up(self, process: LeveretProcess, tmp_path: Path) -> None:
        """Those of 9 MB are written at once; of a batch, only the rows that were not taken are kept."""
        sink = make_sink(process, failurePath=str(tmp_path / "failures"))
        LeveretWriter(sink, UNKNOWN).commit([write(sink, batch(6, "nowhere", size=3_000_000))])
        (file,) = (tmp_path / "failures").glob("*.parquet")
        assert pq.ParquetFile(file).metadata.num_row_groups == 2

    def test_a_broker_that_removes_a_header(self, process: LeveretProcess, channel: Channel) -> None:
        types = {"body": "string", "headers_json": "string"}
        rows = pa.RecordBatch.from_pydict({"body": ["a", "b"], "headers_json": ['{"BCC": ["nowhere"]}'] * 2})
        sink = make_sink(process, types=types, routingKey="nowhere", onFailure="count")
        assert write(sink, rows).failures == {"unroutable": 2}


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"user": "nobody"}, "403 ACCESS_REFUSED"),
            ({"exchange": "missing"}, "404 NOT_FOUND - no exchange 'missing' in vhost '/'"),
            ({"url": "amqp://127.0.0.1:1"}, "cannot connect to amqp://guest@127.0.0.1:1/%2F"),
        ],
    )
    def test_before_it_begins(self, process: LeveretProcess, options: dict[str, Any], expected: str) -> None:
        with pytest.raises(SinkError, match=expected):
            make_sink(process, **options).check()

    def test_a_virtual_host_that_is_not_there(self, process: LeveretProcess) -> None:
        with pytest.raises(SinkError, match="vhost nowhere not found"):
            make_sink(process, url=f"{process.url}/nowhere").check()

    def test_the_user_of_a_message(self, process: LeveretProcess, channel: Channel) -> None:
        channel.queue_declare("q")
        types = {"body": "string", "user_id": "string"}
        rows = pa.RecordBatch.from_pydict({"body": ["x"], "user_id": ["somebody"]})
        with pytest.raises(SinkError, match="406 PRECONDITION_FAILED - user_id property set to 'somebody'"):
            write(make_sink(process, types=types, routingKey="q"), rows)

    def test_a_broker_that_does_not_answer(self, process: LeveretProcess) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(SinkError, match=r"has confirmed nothing for 0\.5 s"):
                make_sink(process, url=url, timeout="0.5").check()

    def test_a_broker_that_blocks_publishers(self, tmp_path: Path) -> None:
        with ThreadedBroker(tmp_path) as broker:
            broker.set_alarms("memory")
            sink = Sink(parse_sink_options({"url": broker.url, "exchange": "", "timeout": "1"}), row_layout(TEXT, None))
            with pytest.raises(SinkError, match="for 1 s, because it blocks publishers: low on memory"):
                write(sink, batch(10))

    def test_a_broker_that_goes_away(self, tmp_path: Path) -> None:
        with LeveretProcess(tmp_path) as process:
            with Connection(process.url) as connection:
                connection.channel().queue_declare("q", durable=True)
            sink = make_sink(process)
            begun = threading.Event()

            def batches() -> Iterator[pa.RecordBatch]:
                yield batch(5000)
                begun.set()
                process.kill()
                yield from [batch(5000)] * 10

            with pytest.raises(SinkError, match=r"has closed the connection|was lost"):
                sink.write(batches())
            assert begun.is_set()


class TestExactlyOnce:
    def test_a_broker_that_was_killed(self, tmp_path: Path) -> None:
        """The task is repeated. No row is missing; only what was stored just before the kill can be there twice."""
        with LeveretProcess(tmp_path) as process:
            with Connection(process.url) as connection:
                channel = connection.channel()
                arguments = [("x-cache-size", "I", 6_000), ("x-cache-persistence", "S", "disk")]
                channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
                channel.queue_declare("q", durable=True)
                channel.queue_bind("q", "once", "")
            sink = make_sink(process, exchange="once")

            def batches(kill_at: int) -> Iterator[pa.RecordBatch]:
                for first in range(0, 6_000, 500):
                    if first == kill_at:
                        process.kill()
                    yield batch(500, first=first)

            with pytest.raises(SinkError):
                sink.write(batches(4_000))
            process.start()
            assert write(sink, *batches(-1)) == TaskResult(6_000)
            with Connection(process.url) as connection:
                found = bodies(connection.channel())
            assert set(found) == {f"{number:06}" for number in range(6_000)}
            assert len(found) < 6_000 + 2048, "not more than can be unconfirmed"

    def test_obstacles(self, process: LeveretProcess, channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
        twice = "what Spark repeats after a failure is published twice"
        no_key = make_sink(process, types={"body": "string"}).check()
        assert no_key.obstacles == (
            f"rows have no key, so {twice}; add a column key, or keep queue_id, store_priority and seq",
        )
        assert "not exactly once: rows have no key" in caplog.text
        (default,) = make_sink(process).check().obstacles
        assert default.startswith(f"the default exchange drops no duplicates, so {twice}")
        channel.exchange_declare("x", "fanout")
        assert make_sink(process, exchange="x").check().obstacles == (
            f"exchange 'x' is of type fanout and drops no duplicates, so {twice}",
        )
        channel.exchange_declare("once", "x-message-deduplication", arguments=[("x-cache-size", "I", 10)])
        channel.queue_declare("q")
        channel.queue_bind("q", "once", "")
        sink = make_sink(process, exchange="once")
        found = sink.check()
        assert (len(found.obstacles), found.size) == (1, 10)
        assert found.obstacles[0].startswith("exchange 'once' forgets its values when the broker restarts")
        assert found.after(10) == []
        assert "remembers 10 values, and 11 rows were published" in found.after(11)[0]

    def test_policies_count(self, process: LeveretProcess, channel: Channel) -> None:
        arguments = [("x-cache-size", "I", 10), ("x-cache-persistence", "S", "disk")]
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
        channel.queue_declare("q")
        channel.queue_bind("q", "once", "")
        api = Management(process.http_url)
        definition = {"x-cache-size": 20, "x-cache-ttl": 60_000}
        policy = {"pattern": "^once$", "definition": definition, "apply-to": "exchanges"}
        api.request("PUT", "policies", "/", "p", body=policy)
        try:
            found = make_sink(process, exchange="once").check()
        finally:
            api.request("DELETE", "policies", "/", "p")
        assert (len(found.obstacles), found.size) == (1, 20)
        assert found.obstacles[0].startswith("exchange 'once' remembers values for 60000 ms only")

    def test_an_exchange_that_leads_nowhere(self, process: LeveretProcess, channel: Channel) -> None:
        """It would remember rows that no queue has got, and drop them once there is one."""
        arguments = [("x-cache-size", "I", 10), ("x-cache-persistence", "S", "disk")]
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
        sink = make_sink(process, exchange="once")
        with pytest.raises(SinkError, match="exchange 'once' drops duplicates and leads to no queue: bind a queue"):
            sink.check()
        channel.exchange_delete("once")
        arguments.append(("alternate-exchange", "S", "amq.fanout"))
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
        assert sink.check() == ExchangeCheck((), 10)

    def test_an_http_api_that_does_not_say(self, process: LeveretProcess, channel: Channel) -> None:
        channel.exchange_declare("x", "fanout")
        for url in ("http://127.0.0.1:1", f"{process.http_url}/nothing", process.url.replace("amqp", "http")):
            (unknown,) = make_sink(process, exchange="x", managementUrl=url).check().obstacles
            assert unknown.startswith("it is unknown whether exchange 'x' drops duplicates (http://")
            assert unknown.endswith("; set managementUrl)")

    def test_a_stream_says_it_once(
        self, process: LeveretProcess, channel: Channel, session: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        channel.queue_declare("q")
        for number in range(3):
            sink = make_sink(process, session)
            LeveretStreamWriter(sink, sink.check_once()).commit([write(sink, batch(1))], number)
        assert caplog.text.count("not exactly once") == 1
        written = read_written(session)
        assert (written.rows, len(written.warnings)) == (3, 1)

    def test_a_stream_is_checked_before_it_begins(self, process: LeveretProcess, session: str) -> None:
        with pytest.raises(SinkError, match="no exchange 'missing'"):
            make_sink(process, session, exchange="missing").check_once()

    def test_queries_at_the_same_time_are_added_up(self, session: str) -> None:
        threads = [
            threading.Thread(target=add_written, args=(session, 3, {"refused": 1}, [f"w{number % 2}"]))
            for number in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = read_written(session)
        assert (found[:4], sorted(found.warnings)) == ((120, 40, 0, 0), ["w0", "w1"])
        add_written("", 1, {}, [])
        assert read_written("") == Written()


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    options = ["--amqps-port", "0", "--set", f"ssl_options.certfile={issued.certificate}"]
    options += ["--set", f"ssl_options.keyfile={issued.key}"]
    with running(tmp_path, *options) as program:
        given = {"url": f"amqps://{program.addresses['amqps']}", "exchange": "", "onFailure": "count"}
        layout = row_layout(TEXT, None)
        with pytest.raises(SinkError, match="certificate verify failed"):
            write(Sink(parse_sink_options(given), layout), batch(1))
        trusting = Sink(parse_sink_options({**given, "caFile": str(authority.file)}), layout)
        assert write(trusting, batch(3000, size=1000)).failures == {"unroutable": 3000}
