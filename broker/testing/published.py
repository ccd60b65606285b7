"""Keeps what clients publish, for tests that look at it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from leveret.broker.core.clients import ClientChannel, ClientConnection
from leveret.broker.testing.messages import PublishedMessage, read_published
from leveret.protocol.events import Event, MethodReceived, PublishRun, VariedRun
from leveret.protocol.methods import INDEX
from leveret.storage.message import Envelope

_COMMIT: Final = INDEX["tx.commit"]
_ROLLBACK: Final = INDEX["tx.rollback"]
#: The newest messages are kept, up to this number, and up to this number of bytes of their bodies.
_MESSAGES_MAX: Final = 100_000
_BYTES_MAX: Final = 64 << 20


class _Kept(NamedTuple):
    """A published message.

    Attributes:
        vhost_name: Name of the virtual host.
        exchange: Name of the exchange.
        route: Exchange and routing key as encoded short strings.
        header: The content header.
        body: The body.
    """

    vhost_name: str
    exchange: str
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
        """Return messages in the order of their publishing.

        Args:
            vhost_name: Name of the virtual host.
            exchange: Name of the exchange; None for all.
        """
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
