"""The writers of Spark: `df.write` and `writeStream`."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from leveret.analytics.sink.connection import Connection, Publisher, SinkError, require_exchange
from leveret.analytics.sink.outcome import FailedRows, add_written, load_note, publish_file, remove_file, save_note
from leveret.analytics.sink.published_rows import RowEncoder, RowLayout
from leveret.analytics.sink.sink_options import SinkOptions
from leveret.protocol.constants import FRAME_OVERHEAD
from leveret.protocol.short_strings import encode_shortstr

_TYPE: Final = "x-message-deduplication"
_SECONDS: Final = 10.0
_TWICE: Final = "publishes some of them twice"
_AT_LEAST_ONCE: Final = "what Spark repeats after a failure is published twice"


class ExchangeCheck(NamedTuple):
    """What is known about an exchange.

    Attributes:
        obstacles: Why rows may be published more than once; empty if nothing stands in the way.
        size: How many values it remembers; None if it does not say.
    """

    obstacles: tuple[str, ...]
    size: int | None = None

    def after(self, rows: int) -> list[str]:
        """Return why rows may be published more than once, now that their number is known."""
        if self.size is None or rows <= self.size:
            return []
        return [f"the exchange remembers {self.size} values, and {rows} rows were published: a repetition {_TWICE}"]


def check_exchange(options: SinkOptions, layout: RowLayout) -> ExchangeCheck:
    """Ask the broker whether an exchange drops what is published a second time.

    Raises:
        SinkError: It would drop what had no queue the first time.
    """
    if not layout.key:
        needed = "add a column key, or keep queue_id, store_priority and seq"
        return ExchangeCheck((f"rows have no key, so {_AT_LEAST_ONCE}; {needed}",))
    if not options.exchange:
        where = f"publish to an exchange of type {_TYPE}"
        return ExchangeCheck((f"the default exchange drops no duplicates, so {_AT_LEAST_ONCE}; {where}",))
    try:
        exchange = _get(options, "exchanges", options.exchange)
        policy = exchange.get("policy")
        settings = {**exchange["arguments"], **(_get(options, "policies", policy)["definition"] if policy else {})}
        found = [f"exchange '{options.exchange}' {reason}" for reason in _reasons(exchange, settings)]
        bindings = _get(options, "exchanges", options.exchange, "/bindings/source")
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        reason = f"{options.api!r} does not say: {error}; set managementUrl"
        return ExchangeCheck((f"it is unknown whether exchange '{options.exchange}' drops duplicates ({reason})",))
    if _drops_duplicates(exchange, settings) and not bindings and "alternate-exchange" not in settings:
        # What is published comes back, and its value is remembered: next time it would be dropped, and confirmed.
        raise SinkError(f"exchange '{options.exchange}' drops duplicates and leads to no queue: bind a queue first")
    size = settings.get("x-cache-size")
    return ExchangeCheck(tuple(found), size if isinstance(size, int) else None)


def _reasons(exchange: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    if not _drops_duplicates(exchange, settings):
        yield f"is of type {exchange['type']} and drops no duplicates, so {_AT_LEAST_ONCE}"
        return
    if not exchange["durable"] or settings.get("x-cache-persistence") != "disk":
        yield "forgets its values when the broker restarts; declare it durable, with x-cache-persistence disk"
    if settings.get("x-cache-ttl"):
        yield f"remembers values for {settings['x-cache-ttl']} ms only; repeat a query that has failed within that time"


def _drops_duplicates(exchange: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return _TYPE in (exchange["type"], settings.get("x-delayed-type"))


def _get(options: SinkOptions, kind: str, name: str, part: str = "") -> Any:
    server, api = options.server, options.api
    path = "/".join(quote(each, safe="") for each in (kind, server.vhost, name)) + part
    login = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    request = urllib.request.Request(f"{api.url}/api/{path}", headers={"Authorization": f"Basic {login}"})
    context = ssl.create_default_context(cafile=server.ca_file) if server.ca_file else None
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        error.close()
        raise


_LOG: Final = logging.getLogger("leveret.analytics")
_REASONS: Final = {
    "refused": "a queue that it was routed to has refused it, for example because it is full",
    "unroutable": "no queue is bound for it",
}


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What one task has done.

    Attributes:
        rows: Rows that it had.
        failures: Rows that were not taken, by kind.
        reasons: What was wrong with the first row of each kind.
        file: File with these rows; "" if there is none.
    """

    rows: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True)
class Sink:
    """What writers of both kinds do.

    Attributes:
        options: Options of the sink.
        layout: The columns.
        session: Directory in which what was written is noted; "" for none.
    """

    options: SinkOptions
    layout: RowLayout
    session: str = ""

    def check(self) -> ExchangeCheck:
        """Check that messages can be published, and log what stands in the way of exactly once.

        Raises:
            SinkError: They cannot.
        """
        connection = Connection(self.options.server, self.options.timeout)
        try:
            require_exchange(connection, self.options.exchange)
        finally:
            connection.close()
        found = check_exchange(self.options, self.layout)
        for each in found.obstacles:
            _LOG.warning("not exactly once: %s", each)
        return found

    def check_once(self) -> ExchangeCheck:
        """Check at the first time in a session, and return what was found then.

        Raises:
            SinkError: Messages cannot be published.
        """
        name = sha256(repr((self.options, self.layout)).encode()).hexdigest()
        noted = load_note(self.session, name)
        if noted is not None:
            obstacles, size = noted
            return ExchangeCheck(tuple(obstacles), size)
        found = self.check()
        save_note(self.session, name, found)
        return found

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Publish the rows of a task.

        Raises:
            SinkError: The broker ends the connection, or does not confirm in time.
        """
        task = _Task(self)
        try:
            for batch in batches:
                task.add(batch)
            return task.finish()
        except BaseException:
            with suppress(OSError):
                task.rows.discard()
            raise
        finally:
            task.close()

    def commit(self, results: Sequence[WriterCommitMessage | None], check: ExchangeCheck) -> None:
        """Note what was written, and make the files of rows that were not taken visible.

        Raises:
            SinkError: Rows were not taken, and that is to fail the query.
        """
        done = [each for each in results if isinstance(each, TaskResult)]
        failures: Counter[str] = Counter()
        reasons: dict[str, str] = {}
        for each in done:
            failures.update(each.failures)
            reasons = {**each.reasons, **reasons}
            if each.file and self.options.failure_path is not None:
                publish_file(self.options.failure_path, each.file)
        rows = sum(each.rows for each in done)
        warnings = check.after(rows)
        for warning in warnings:
            _LOG.warning("not exactly once: %s", warning)
        add_written(self.session, rows, failures, [*check.obstacles, *warnings])
        if failures:
            parts = [f"{count} {kind} ({reasons[kind]})" for kind, count in failures.most_common()]
            text = f"{failures.total()} of {rows} rows were not taken: {', '.join(parts)}"
            if self.options.fails:
                raise SinkError(f"{text}; onFailure=count or failurePath goes on without them")
            _LOG.warning("%s", text)

    def abort(self, results: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of rows that were not taken."""
        for each in results:
            if isinstance(each, TaskResult) and each.file and self.options.failure_path is not None:
                remove_file(self.options.failure_path, each.file)


class _Task:
    """Publishes the rows of one task."""

    def __init__(self, sink: Sink) -> None:
        self._options = sink.options
        self._encoder = RowEncoder(sink.layout)
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        #: Number of the first row of each batch of which rows may still fail, and the batch.
        self._batches: deque[tuple[int, pa.RecordBatch]] = deque()
        self._count = 0
        #: Bytes of properties and headers: they have to fit into a frame.
        self._header_max = 0
        self._failures: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self.rows = FailedRows(sink.options.failure_path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Publish the rows of a batch."""
        if not batch.num_rows:
            return
        publisher = self._publisher or self._open()
        self._batches.append((self._count, batch))
        for number, message in enumerate(self._encoder.messages(batch), self._count):
            if isinstance(message, ValueError):
                self._fail(number, "invalid", str(message))
            elif (size := len(message.header)) > self._header_max:
                self._fail(number, "invalid", f"its properties have {size} bytes, {self._header_max} are allowed")
            else:
                publisher.publish(number, message)
        self._count += batch.num_rows
        oldest = publisher.oldest(self._count)
        while len(self._batches) > 1 and self._batches[1][0] <= oldest:
            self._batches.popleft()

    def finish(self) -> TaskResult:
        """Wait until all rows are confirmed."""
        if self._publisher is not None:
            self._publisher.finish()
        return TaskResult(self._count, dict(self._failures), self._reasons, self.rows.close())

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> Publisher:
        connection = self._connection = Connection(self._options.server, self._options.timeout)
        self._header_max = connection.frame_max - FRAME_OVERHEAD
        exchange = encode_shortstr(self._options.exchange)
        self._publisher = Publisher(connection, exchange, lambda row, kind: self._fail(row, kind, _REASONS[kind]))
        return self._publisher

    def _fail(self, number: int, kind: str, reason: str) -> None:
        self._failures[kind] += 1
        self._reasons.setdefault(kind, reason)
        first, batch = next(each for each in reversed(self._batches) if each[0] <= number)
        self.rows.add(batch, number - first, kind, reason)


class _Writer:
    """What the writers of both kinds have in common."""

    def __init__(self, sink: Sink, check: ExchangeCheck) -> None:
        self._sink = sink
        self._check = check

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; see Sink.write()."""
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        """End the query, or a batch; see Sink.commit()."""
        self._sink.commit(messages, self._check)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        """Give it up; see Sink.abort()."""
        self._sink.abort(messages)


class LeveretWriter(_Writer, DataSourceArrowWriter):
    """Writer of `df.write`."""


class LeveretStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer of `writeStream`. Spark makes one for each batch, and another one for its end."""
