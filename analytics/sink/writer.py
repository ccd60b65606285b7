"""The writers of Spark: `df.write` and `writeStream`."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from leveret.analytics.sink.connection import Connection, SinkError, require_exchange
from leveret.analytics.sink.exchange_check import ExchangeCheck, check_exchange
from leveret.analytics.sink.failures import FailedRows, publish_file, remove_file
from leveret.analytics.sink.options import SinkOptions
from leveret.analytics.sink.publisher import Publisher
from leveret.analytics.sink.rows import RowEncoder, RowLayout
from leveret.analytics.sink.written import add_written, load_note, save_note
from leveret.protocol.constants import FRAME_OVERHEAD
from leveret.protocol.short_strings import encode_shortstr

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
    """Publishes the rows of one task.

    Args:
        sink: The sink.
    """

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
    """What the writers of both kinds have in common.

    Args:
        sink: What it does.
        check: What is known about the exchange.
    """

    def __init__(self, sink: Sink, check: ExchangeCheck) -> None:
        self._sink = sink
        self._check = check

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; see Sink.write()."""
        return self._sink.write(iterator)


class LeveretWriter(_Writer, DataSourceArrowWriter):
    """Writer of `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the query; see Sink.commit()."""
        self._sink.commit(messages, self._check)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up; see Sink.abort()."""
        self._sink.abort(messages)


class LeveretStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer of `writeStream`. Spark makes one for each batch, and another one for its end."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """End a batch; see Sink.commit()."""
        self._sink.commit(messages, self._check)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give up a batch; see Sink.abort()."""
        self._sink.abort(messages)
