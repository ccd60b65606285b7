"""What a queue does with messages that return to it: it counts them, drops those over a limit, and lets some wait."""

from __future__ import annotations

from leveret.broker.core.queues.delivery_count import DeliveryCounter, delivery_count, delivery_limit, returns_of
from leveret.broker.core.queues.limits import UNBOUNDED
from leveret.broker.core.queues.traits import QueueTraits
from leveret.policies.retry import read_retry
from leveret.policies.settings import QueueSettings
from leveret.storage.message import Message


class ReturnRules:
    """The rules in force on one queue.

    As in RabbitMQ 4.3, on a quorum queue with delayed retries only failures raise the delivery count; a header has the
    number of all returns then. In all other cases each return raises it.

    Args:
        settings: Effective settings of the queue.
        traits: Traits of its type.
        counter: Sets the counts.

    Attributes:
        is_needed: Whether messages of a classic queue are counted or wait at all.
        delays: Whether messages may wait.
    """

    __slots__ = ("_counter", "_delivery_limit", "_failures_only", "_redelivery_limit", "_retry", "delays", "is_needed")

    def __init__(self, settings: QueueSettings, traits: QueueTraits, counter: DeliveryCounter) -> None:
        self._counter = counter
        self._retry = read_retry(settings)
        self.delays = self._retry is not None
        self._failures_only = self.delays and traits.counts_deliveries
        limit = settings.redelivery_limit
        self.is_needed = self.delays or limit is not None
        self._redelivery_limit = UNBOUNDED if limit is None else limit
        self._delivery_limit = delivery_limit(settings) if traits.counts_deliveries else UNBOUNDED

    def is_over_limit(self, message: Message, failed: bool) -> bool:
        """Return whether a message has returned too often.

        Args:
            message: The message, before this return is counted.
            failed: Whether it was rejected, or its channel has ended.
        """
        count, returns = self._counts(message, failed)
        counted = failed or not self._failures_only
        return (counted and count > self._delivery_limit) or returns > self._redelivery_limit

    def counted(self, message: Message, failed: bool) -> tuple[Message, int]:
        """Return a message with its new counts, and how many milliseconds it waits; 0 if it does not.

        Args:
            message: See is_over_limit().
            failed: See is_over_limit().
        """
        count, returns = self._counts(message, failed)
        made = self._counter.with_count(message, count, returns if self._failures_only else None)
        retry = self._retry
        return made, 0 if retry is None else retry.delay(failed, count, returns)

    def _counts(self, message: Message, failed: bool) -> tuple[int, int]:
        """Return the delivery count and the number of returns after this return."""
        if self._failures_only:
            return delivery_count(message) + (1 if failed else 0), returns_of(message) + 1
        count = delivery_count(message) + 1
        return count, count
