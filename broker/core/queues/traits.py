"""Queue types: what distinguishes them, and length limits.

Ready messages count, those that wait for their retry, and unacked ones if that is set; of their bytes only the bodies.
A queue at its limit does not exceed it.

Source: https://www.rabbitmq.com/docs/maxlength
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from leveret.broker.core.delays.schedule import Schedule
from leveret.policies.queue_settings import QueueSettings
from leveret.storage.interface import MessageStore
from leveret.storage.stores.priority_store import STRICT_PRIORITY_MAX

#: The release of RabbitMQ that queues follow unless an option says otherwise.
DEFAULT_RELEASE: Final = "3.10.8"
#: A limit above the length of any queue.
UNBOUNDED: Final = 1 << 62


class UnackedTotal:
    """The unacked messages of one queue.

    Attributes:
        count: Number of messages that were delivered and are not settled yet.
        body_bytes: Bytes of their bodies.
    """

    __slots__ = ("body_bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.body_bytes = 0


class Limits:
    """The limits of one queue on its ready messages.

    Attributes:
        refuses: Whether new messages are refused at the limit, instead of dropping the oldest.
        dead_letters_refused: Whether refused messages are dead-lettered.
        counts_unacked: Whether unacked messages count, too.
    """

    __slots__ = ("_max_bytes", "_max_messages", "counts_unacked", "dead_letters_refused", "refuses")

    def __init__(self, settings: QueueSettings) -> None:
        self._max_messages = UNBOUNDED if settings.max_length is None else settings.max_length
        self._max_bytes = UNBOUNDED if settings.max_length_bytes is None else settings.max_length_bytes
        self.refuses = settings.overflow != "drop-head"
        self.dead_letters_refused = settings.overflow == "reject-publish-dlx"
        self.counts_unacked = False

    def room(self, store: MessageStore, size: int) -> int:
        """Return how many more messages fit; 0 or less for none.

        Args:
            store: The store of the queue.
            size: Body size of each new message, in bytes.
        """
        return _room(self._max_messages - store.ready_count, self._max_bytes - store.ready_bytes, size)

    def excess_messages(self, store: MessageStore) -> int:
        """Return the number of messages above the limit; 0 or less if there are none."""
        return store.ready_count - self._max_messages

    def excess_bytes(self, store: MessageStore) -> int:
        """Return the number of body bytes above the limit; 0 or less if there are none."""
        return store.ready_bytes - self._max_bytes

    def exceeded(self, store: MessageStore) -> bool:
        """Check whether a limit is exceeded."""
        return store.ready_count > self._max_messages or store.ready_bytes > self._max_bytes


class TotalLimits(Limits):
    """The limits of one queue on its ready messages together with others.

    Only ready messages can be dropped, so the excess is never more than they are.

    Args:
        unacked: Its unacked messages; None if they do not count.
        waiting: Its messages that wait for their retry; None if there are none.
    """

    __slots__ = ("_unacked", "_waiting")

    def __init__(self, settings: QueueSettings, unacked: UnackedTotal | None, waiting: Schedule | None) -> None:
        super().__init__(settings)
        self.counts_unacked = unacked is not None
        self._unacked = UnackedTotal() if unacked is None else unacked
        self._waiting = waiting

    def room(self, store: MessageStore, size: int) -> int:
        """Return how many more messages fit; see Limits.room()."""
        return _room(self._messages_left(store), self._bytes_left(store), size)

    def excess_messages(self, store: MessageStore) -> int:
        """Return the number of ready messages above the limit; 0 or less if there are none."""
        return min(-self._messages_left(store), store.ready_count)

    def excess_bytes(self, store: MessageStore) -> int:
        """Return the number of body bytes above the limit; 0 or less if there are none."""
        return -self._bytes_left(store)

    def exceeded(self, store: MessageStore) -> bool:
        """Check whether a limit is exceeded, and there are ready messages to drop."""
        return store.ready_count > 0 and (self._messages_left(store) < 0 or self._bytes_left(store) < 0)

    def _messages_left(self, store: MessageStore) -> int:
        waiting = self._waiting
        return (
            self._max_messages
            - store.ready_count
            - self._unacked.count
            - (0 if waiting is None else waiting.left_count)
        )

    def _bytes_left(self, store: MessageStore) -> int:
        waiting = self._waiting
        return (
            self._max_bytes
            - store.ready_bytes
            - self._unacked.body_bytes
            - (0 if waiting is None else waiting.body_bytes)
        )


def _room(messages: int, body_bytes: int, size: int) -> int:
    """Return how many messages with bodies of a size fit into what is left of both limits."""
    if size:
        return min(messages, body_bytes // size)
    # A message with an empty body fits unless the byte limit is exceeded already.
    return messages if body_bytes >= 0 else 0


@dataclass(frozen=True, slots=True)
class QueueTraits:
    """The traits of a queue type.

    Args:
        queue_type: The type's name in declarations and policies.
        supports_global_prefetch: Whether basic.qos with global=true is supported.
        supports_conditional_delete: Whether queue.delete with if-unused or if-empty is supported.
        supports_exclusive_consumers: Whether basic.consume with exclusive=true is supported.
        supports_reject_publish_dlx: Whether overflow may be reject-publish-dlx; if not, it is treated as drop-head.
        allows_get_with_single_active: Whether basic.get is allowed with a single active consumer.
        counts_waiting_consumers: Whether inactive consumers of a single-active queue count in queue.declare-ok.
        release: The release of RabbitMQ whose queues of the type it follows.
        counts_deliveries: Whether requeued messages always have a delivery count, and are appended instead of put back.
        counts_failures_only: Whether only failures raise that count; then what returns precedes all other messages.
        max_priority: The highest priority of a queue without x-max-priority.
        refuses_dead_letters: Whether dead letters are refused at the limit, too.
        delivers_each_run: Whether messages are delivered with each run, not at the end of the turn.
        keeps_messages: Whether messages stay when they are consumed. Then there is no get, no purge and no requeue,
            and queue.delete ignores its conditions.
    """

    queue_type: Literal["classic", "quorum", "stream"]
    release: str = DEFAULT_RELEASE
    supports_global_prefetch: bool = True
    supports_conditional_delete: bool = True
    supports_exclusive_consumers: bool = True
    supports_reject_publish_dlx: bool = True
    allows_get_with_single_active: bool = True
    counts_waiting_consumers: bool = True
    counts_deliveries: bool = False
    counts_failures_only: bool = False
    max_priority: int = 0
    refuses_dead_letters: bool = True
    delivers_each_run: bool = False
    keeps_messages: bool = False

    def limits(self, settings: QueueSettings, unacked: UnackedTotal, waiting: Schedule | None) -> Limits | None:
        """Return the length limits of a queue of this type; None if there are none.

        Args:
            settings: Effective settings of the queue.
            unacked: Its unacked messages.
            waiting: Its messages that wait for their retry, if there are some.
        """
        if settings.max_length is None and settings.max_length_bytes is None:
            return None
        settings = replace(settings, overflow=self.overflow(settings))
        counted = unacked if settings.length_counts == "all" else None
        return Limits(settings) if counted is None and waiting is None else TotalLimits(settings, counted, waiting)

    def overflow(self, settings: QueueSettings) -> str:
        """Return the overflow behaviour of a queue of this type."""
        if settings.overflow == "reject-publish-dlx" and not self.supports_reject_publish_dlx:
            return "drop-head"
        return settings.overflow


#: Classic queues.
CLASSIC: Final = QueueTraits("classic")

#: Classic queues with x-max-priority. As in RabbitMQ, a consumer with credit gets the first message to arrive, even if
#: one of higher priority follows in the same turn. So only messages that have to wait are sorted.
PRIORITY: Final = replace(CLASSIC, delivers_each_run=True)

#: Quorum queues. Dead letters are never refused by them, because they would be lost.
#: Source: https://www.rabbitmq.com/docs/quorum-queues
QUORUM: Final = QueueTraits(
    "quorum",
    supports_global_prefetch=False,
    supports_conditional_delete=False,
    supports_exclusive_consumers=False,
    supports_reject_publish_dlx=False,
    allows_get_with_single_active=False,
    counts_waiting_consumers=False,
    counts_deliveries=True,
    refuses_dead_letters=False,
)

#: Quorum queues as of RabbitMQ 4.3, which the option compat.quorum_queues asks for.
#: Source: https://www.rabbitmq.com/docs/4.3/quorum-queues
_QUORUM_4_3: Final = replace(QUORUM, release="4.3", counts_failures_only=True, max_priority=STRICT_PRIORITY_MAX)

#: Quorum queues by the release that they follow.
QUORUM_RELEASES: Final = {each.release: each for each in (QUORUM, _QUORUM_4_3)}

#: Streams.
#: Source: https://www.rabbitmq.com/docs/streams
STREAM: Final = QueueTraits(
    "stream", supports_global_prefetch=False, supports_exclusive_consumers=False, keeps_messages=True
)
