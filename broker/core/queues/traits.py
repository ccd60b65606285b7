"""The traits of queue types: what distinguishes classic, priority and quorum queues, and streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.queues.limits import Limits, TotalLimits, UnackedTotal
from leveret.policies.settings import QueueSettings


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
        counts_deliveries: Whether requeued messages always have a delivery count, and are appended instead of put back.
        refuses_dead_letters: Whether dead letters are refused at the limit, too.
        delivers_each_run: Whether messages are delivered with each run, not at the end of the turn.
        keeps_messages: Whether messages stay when they are consumed. Then there is no get, no purge and no requeue,
            and queue.delete ignores its conditions.
    """

    queue_type: Literal["classic", "quorum", "stream"]
    supports_global_prefetch: bool = True
    supports_conditional_delete: bool = True
    supports_exclusive_consumers: bool = True
    supports_reject_publish_dlx: bool = True
    allows_get_with_single_active: bool = True
    counts_waiting_consumers: bool = True
    counts_deliveries: bool = False
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

#: Streams.
#: Source: https://www.rabbitmq.com/docs/streams
STREAM: Final = QueueTraits(
    "stream", supports_global_prefetch=False, supports_exclusive_consumers=False, keeps_messages=True
)
