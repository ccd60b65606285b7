"""Publishes the messages of queues in a backup into a running broker, into queues of other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import BinaryIO, Final

from leveret.analytics.backup.layout import BackupRefusedError
from leveret.analytics.backup.moments import Moment, shown_time
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import snapshot_at
from leveret.analytics.sink.connection import Connection, Encoded, Failure, Publisher, SinkError
from leveret.analytics.sink.sink_options import Server, parse_sink_options
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.properties import USER_ID, Properties
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.format import Stream, scan, unpack_envelope
from leveret.storage.snapshots.snapshot import QueueView
from leveret.storage.snapshots.writing import live_records

_QUEUE_DECLARE: Final = 0x0032000A
_QUEUE_DECLARE_OK: Final = 0x0032000B
_PASSIVE: Final = 1
_DURABLE: Final = 2
_NOT_FOUND: Final = " 404 NOT_FOUND"
#: Lengths of content header and body.
_LENGTHS: Final = Struct(">II")
#: Seconds for which the broker may confirm nothing.
_TIMEOUT: Final = 600.0


@dataclass(slots=True)
class Republished:
    """What was published, or would be.

    Attributes:
        time: The moment, in microseconds since 1970.
        queues: For each queue: its virtual host, its name, the queue that got its messages, and their number.
        refused: Number of messages that the broker has not taken.
    """

    time: int
    queues: list[tuple[str, str, str, int]] = field(default_factory=list)
    refused: int = 0


def republish(
    repository: Repository,
    at: int | None,
    is_chosen: Callable[[QueueView], bool],
    url: str,
    name: str,
    is_dry: bool = False,
) -> Republished:
    """Publish the messages of queues in the order in which they would have been delivered, and wait for all confirms.

    Args:
        repository: The backup.
        at: The moment, in microseconds since 1970; None for the newest backup.
        is_chosen: Which queues.
        url: The broker, as ``amqp://user:password@host:port/vhost``.
        name: Name of the queue for a queue's messages, in which ``{}`` is that queue's name. A durable one is declared
            if there is none.
        is_dry: Count only.
    Raises:
        BackupRefusedError: No queue is chosen, or a name is too long.
        AnalyticsError: The backup cannot be read, or the broker refuses something.
        OSError: A file of the backup is damaged.
    """
    moment = Moment(repository, at)
    snapshot = snapshot_at(moment)
    queues = [queue for queue in snapshot.queues if queue.kind == "queue" and is_chosen(queue)]
    if not queues:
        there = ", ".join(sorted({queue.name for queue in snapshot.queues if queue.kind == "queue"})[:10])
        raise BackupRefusedError(f"no queue of the backup is chosen; queues there: {there or 'none'}")
    server: Server = parse_sink_options({"url": url, "exchange": ""}).server
    done = Republished(snapshot.cut.time)
    for queue in queues:
        target = name.replace("{}", queue.name)
        if not 0 < len(target.encode()) <= SHORTSTR_MAX:
            raise BackupRefusedError(f"the name of a queue has 1 to {SHORTSTR_MAX} bytes, unlike '{target}'")
        count = _Messages(moment, queue, snapshot.cut.time, done).publish(None if is_dry else server, target)
        done.queues.append((queue.vhost, queue.name, target, count))
    return done


def write_messages(repository: Repository, at: int | None, vhost: str, name: str, skip: int, stream: BinaryIO) -> None:
    """Write the messages of a queue, for the broker: a line of JSON with their number, then each with two lengths.

    Args:
        repository: The backup.
        at: The moment, in microseconds since 1970; None for the newest backup.
        skip: Number of messages to leave out at the beginning.
        stream: Gets the lengths of content header and body as 32-bit numbers, the header and the body.
    Raises:
        BackupRefusedError: There was no such queue.
        AnalyticsError: The backup cannot be read.
        OSError: A file of the backup is damaged.
    """
    moment = Moment(repository, at)
    snapshot = snapshot_at(moment)
    found = [each for each in snapshot.queues if (each.kind, each.vhost, each.name) == ("queue", vhost, name)]
    if not found:
        raise BackupRefusedError(f"the backup has no queue '{name}' in vhost '{vhost}' of {shown_time(moment.time)}")
    messages = _Messages(moment, found[0], snapshot.cut.time, Republished(snapshot.cut.time))

    def write(number: int, message: Encoded) -> None:
        if number >= skip:
            stream.write(_LENGTHS.pack(len(message.header), len(message.body)) + message.header + message.body)

    stream.write(b'{"total": %d}\n' % messages.publish(None, name))
    stream.flush()
    messages.each(write, name)
    stream.flush()


class _Messages:
    """The messages of one queue."""

    def __init__(self, moment: Moment, queue: QueueView, cut: int, done: Republished) -> None:
        self._moment = moment
        self._queue = queue
        self._cut = cut
        self._done = done

    def publish(self, server: Server | None, target: str) -> int:
        """Publish them to a queue, which is declared; return their number. None for a server counts only."""
        if server is None:
            return self.each(lambda number, message: None, target)
        connection = _connected(server, target)
        try:
            publisher = Publisher(connection, encode_shortstr(""), self._on_failure)
            count = self.each(publisher.publish, target)
            publisher.finish()
            return count
        finally:
            connection.close()

    def each(self, publish: Callable[[int, Encoded], None], target: str) -> int:
        """Call a function with the number of each message, from 0, and the message; return how many there are."""
        key, number = encode_shortstr(target), 0
        for store in sorted(self._queue.stores, key=lambda each: -each.priority):
            for view in store.segments:
                octets = self._moment.files.read_all(view.path) if view.stream == Stream.DURABLE else None
                if octets is None:
                    continue
                for at, header in live_records(view, scan(octets, view.salt, view.first_seq), self._cut):
                    envelope = unpack_envelope(octets, at, header)
                    start = at + 48 + header.route_len + header.props_len
                    body = octets[start : start + header.body_len]
                    publish(number, Encoded(key, _without_user(envelope.header), body))
                    number += 1
        return number

    def _on_failure(self, number: int, failure: Failure) -> None:
        self._done.refused += 1


def _connected(server: Server, queue: str) -> Connection:
    """Return a connection to a broker that has a queue, which is declared if there is none.

    Raises:
        SinkError: The broker refuses that.
    """
    try:
        return _declared(server, queue, _PASSIVE)
    except SinkError as error:
        if _NOT_FOUND not in str(error):
            raise
    return _declared(server, queue, _DURABLE)


def _declared(server: Server, queue: str, flag: int) -> Connection:
    connection = Connection(server, _TIMEOUT)
    try:
        arguments = bytes(2) + encode_shortstr(queue) + bytes((flag,)) + bytes(4)
        connection.call(1, _QUEUE_DECLARE, arguments, _QUEUE_DECLARE_OK)
    except SinkError:
        connection.close()
        raise
    return connection


def _without_user(header: bytes) -> bytes:
    """Return a content header without the user, whom the broker would compare with the one who is logged in."""
    properties = Properties(header)
    return properties.replaced({USER_ID: None}) if properties.flags & USER_ID else header
