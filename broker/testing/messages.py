"""Messages as tests see them: in queues, and as clients have published them; snapshots, which have both."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, cast

from leveret.broker.app import App
from leveret.broker.core.clients import ClientChannel, ClientConnection
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.messages import published_to
from leveret.broker.core.queues.browsing import Browser
from leveret.broker.core.queues.queue import Queue
from leveret.protocol.frame_reader import Event, MethodReceived, PublishRun, VariedRun
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope

#: Bytes of a body that its representation shows.
_SHOWN_BYTES: Final = 100


@dataclass(frozen=True, repr=False)
class PublishedMessage:
    """A message as it was published.

    Attributes:
        exchange: The exchange that it was published to; "" is the default exchange.
        routing_key: Its routing key.
        body: Its body.
        properties: Its properties by name, without the headers.
        headers: Its headers.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: dict[str, Any]
    headers: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The body as UTF-8.

        Raises:
            UnicodeDecodeError: It is something else.
        """
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Return the value that the body has as JSON.

        Raises:
            ValueError: It is not JSON.
        """
        return json.loads(self.body)

    def __repr__(self) -> str:
        shown = repr(self.body[:_SHOWN_BYTES]) + (
            f"… ({len(self.body)} bytes)" if len(self.body) > _SHOWN_BYTES else ""
        )
        about = [shown, f"exchange={self.exchange!r}", f"routing_key={self.routing_key!r}", *self._details()]
        return f"<{type(self).__name__} {' '.join(about)}>"

    def _details(self) -> Iterator[str]:
        yield from (f"{name}={value!r}" for name, value in self.properties.items())
        if self.headers:
            yield f"headers={self.headers!r}"


@dataclass(frozen=True, repr=False)
class QueuedMessage(PublishedMessage):
    """A message in a queue.

    Attributes:
        is_ready: Whether it is ready; otherwise it has been delivered and is not acknowledged, or waits for its retry.
        redelivered: Whether it may have been delivered before.
    """

    is_ready: bool
    redelivered: bool

    def _details(self) -> Iterator[str]:
        yield from super()._details()
        if not self.is_ready:
            yield "unacked"
        elif self.redelivered:
            yield "redelivered"


def read_published(envelope: Envelope, body: bytes) -> PublishedMessage:
    """Return a message as it was published."""
    return PublishedMessage(*published_to(envelope), body, *_read_header(envelope.header))


def read_queue(queue: Queue) -> list[QueuedMessage]:
    """Return the messages of a queue, ready and unacked, without taking them."""
    return [
        QueuedMessage(
            *published_to(found.message.envelope),
            found.message.body,
            *_read_header(found.message.envelope.header),
            found.is_ready,
            found.redelivered,
        )
        for step in Browser(queue).steps()
        for found in step
    ]


def _read_header(header: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the properties without headers, and the headers."""
    properties = Properties(header)
    return properties.as_dict(with_headers=False), table_to_json(properties.headers())


def find_queue(app: App, queue: str, vhost: str | None) -> Queue:
    """Return a queue; without a virtual host of the default one.

    Raises:
        LookupError: There is no such queue, or virtual host; the text names those that there are.
    """
    name = app.settings.default_vhost if vhost is None else vhost
    found = app.broker.vhosts.get(name)
    if found is None:
        raise LookupError(f"no virtual host '{name}'; there are {sorted(app.broker.vhosts)}")
    if queue not in found.queues:
        raise LookupError(f"no queue '{queue}' in virtual host '{name}'; there are {sorted(found.queues)}")
    return found.queues[queue]


_COMMIT: Final = INDEX["tx.commit"]
_ROLLBACK: Final = INDEX["tx.rollback"]
#: The newest messages are kept, up to this number, and up to this number of bytes of their bodies.
_MESSAGES_MAX: Final = 100_000
_BYTES_MAX: Final = 64 << 20


class _Kept(NamedTuple):
    """A published message."""

    vhost_name: str
    exchange: str
    #: Exchange and routing key as encoded short strings.
    route: bytes
    header: bytes
    body: bytes


#: Published messages, and the bytes of their bodies.
KeptMessages: TypeAlias = tuple[deque[_Kept], int]


class PublishedMessages:
    """What has been published over AMQP, whether or not it was routed. Implements Interceptor.

    Publishes that have failed with an error are not among it; those of a transaction are when it is committed.
    """

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        #: Messages of transactions that are not committed yet, by channel.
        self._uncommitted: dict[ClientChannel, list[_Kept]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._uncommitted.clear()
        self._bytes = 0

    def copy(self) -> KeptMessages:
        """Return what is kept, without what is not committed."""
        return self._kept.copy(), self._bytes

    def replace(self, kept: KeptMessages) -> None:
        """Keep what copy() has returned, and nothing else."""
        self.clear()
        self._kept, self._bytes = kept[0].copy(), kept[1]

    def find(self, vhost_name: str, exchange: str | None) -> list[PublishedMessage]:
        """Return messages in the order of their publishing; of all exchanges without the name of one."""
        return [
            read_published(Envelope(each.route, each.header), each.body)
            for each in self._kept
            if each.vhost_name == vhost_name and exchange in (None, each.exchange)
        ]

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection."""
        return partial(self._handle, connection, handle)

    def _handle(self, connection: ClientConnection, handle: Callable[[Event], None], event: Event) -> None:
        is_publish = isinstance(event, PublishRun | VariedRun)
        is_end = isinstance(event, MethodReceived) and event.method.index in (_COMMIT, _ROLLBACK)
        channel = _channel_of(connection, event.channel) if is_publish or is_end else None  # type: ignore[union-attr]
        if channel is None:
            handle(event)
            return
        # An event that takes long is handled again later, with what is left of it.
        messages = _messages(connection.vhost_name, event) if isinstance(event, PublishRun | VariedRun) else []
        published, held = channel.counters.publish, channel.uncommitted[0]
        handle(event)
        published = channel.counters.publish - published
        if not is_end:
            self._keep(messages[:published])
            added = channel.uncommitted[0] - held
            if added > 0:
                self._uncommitted.setdefault(channel, []).extend(messages[:added])
        elif not channel.uncommitted[0]:
            waiting = self._uncommitted.pop(channel, [])
            self._keep(waiting if published else [])

    def _keep(self, messages: Sequence[_Kept]) -> None:
        self._kept += messages
        self._bytes += sum(len(each.body) for each in messages)
        while self._bytes > _BYTES_MAX or len(self._kept) > _MESSAGES_MAX:
            self._bytes -= len(self._kept.popleft().body)


def _channel_of(connection: ClientConnection, number: int) -> ClientChannel | None:
    return next((each for each in connection.channels if each.number == number), None)


def _messages(vhost_name: str, run: PublishRun | VariedRun) -> list[_Kept]:
    publish, bodies = run.publish, run.bodies
    headers = run.headers if isinstance(run, VariedRun) else [run.header] * len(bodies)
    return [
        _Kept(vhost_name, publish.exchange, publish.route, header, body)
        for header, body in zip(headers, bodies, strict=True)
    ]


class Snapshot:
    """The state of a broker at one time: see Leveret.snapshot(). It is removed with the broker, or by remove().

    Attributes:
        path: Copy of the data directory.
        clock_offset: Microseconds by which the broker's clock was ahead of the system's.
        published: What clients had published.
    """

    def __init__(self, path: Path, clock_offset: int, published: KeptMessages) -> None:
        self.path = path
        self.clock_offset = clock_offset
        self.published = published

    @property
    def exists(self) -> bool:
        """Whether it has not been removed."""
        return self.path.is_dir()

    def remove(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.path, ignore_errors=True)


# -- how lists of messages differ, for failed assertions ------------------------------------------------------

#: Bytes of a body, or characters of a value, that are shown.
_SHOWN: Final = 200
_ABSENT: Final = "nothing"


def explain_differences(left: object, right: object) -> list[str] | None:
    """Return the lines that say how two messages, or lists of them, differ; None if they are something else.

    Args:
        left: What stands before ``==``.
        right: What stands behind it.
    """
    if isinstance(left, PublishedMessage) and isinstance(right, PublishedMessage):
        return ["the messages differ", *_differences(left, right)]
    one, other = _as_messages(left), _as_messages(right)
    if one is None or other is None or not (one or other):
        return None
    return [f"{_count(one)} == {_count(other)}", *_lines(one, other)]


def _as_messages(value: object) -> Sequence[PublishedMessage] | None:
    """Return a list of messages; None if it is something else."""
    is_list = isinstance(value, list | tuple) and all(isinstance(each, PublishedMessage) for each in value)
    return cast("Sequence[PublishedMessage]", value) if is_list else None


def _count(messages: Sequence[PublishedMessage]) -> str:
    return f"{len(messages)} {'message' if len(messages) == 1 else 'messages'}"


def _lines(left: Sequence[PublishedMessage], right: Sequence[PublishedMessage]) -> Iterator[str]:
    """Return a line for each message that is only on one side, and some for each that has changed."""
    # Only failed tests need it.
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, [_key(each) for each in left], [_key(each) for each in right], autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        changed = min(end - start, other_end - other_start)
        for at in range(changed):
            yield f"message {start + at} on the left, {other_start + at} on the right:"
            yield from _differences(left[start + at], right[other_start + at])
        yield from (f"only on the left, at {at}: {left[at]!r}" for at in range(start + changed, end))
        yield from (f"only on the right, at {at}: {right[at]!r}" for at in range(other_start + changed, other_end))


def _key(message: PublishedMessage) -> str:
    # Properties and headers cannot be hashed.
    return repr([getattr(message, each.name) for each in fields(message)])


def _differences(left: PublishedMessage, right: PublishedMessage) -> Iterator[str]:
    """Return a line for each thing in which two messages differ."""
    names = [each.name for each in fields(left) if each.name in {other.name for other in fields(right)}]
    for name in names:
        one, other = getattr(left, name), getattr(right, name)
        if one == other:
            continue
        if name == "body":
            yield from _body_differences(one, other)
        elif isinstance(one, dict):
            yield from _value_differences(name, one, other)
        else:
            yield f"  {name}: {_shown(one)} == {_shown(other)}"
    if type(left) is not type(right):
        yield f"  one is a {type(left).__name__}, the other a {type(right).__name__}"


def _body_differences(left: bytes, right: bytes) -> Iterator[str]:
    """Return lines for bodies: if both are objects in JSON, for each member that differs."""
    try:
        one, other = json.loads(left), json.loads(right)
    except ValueError:
        one = other = None
    if isinstance(one, dict) and isinstance(other, dict) and one != other:
        yield from _value_differences("body", one, other)
    else:
        yield f"  body: {_shown(left)} == {_shown(right)}"


def _value_differences(name: str, left: dict[str, Any], right: dict[str, Any]) -> Iterator[str]:
    keys: Sequence[str] = list(dict.fromkeys([*left, *right]))
    for key in keys:
        if key not in left or key not in right or left[key] != right[key]:
            one, other = (_shown(each[key]) if key in each else _ABSENT for each in (left, right))
            yield f"  {name}[{key!r}]: {one} == {other}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
