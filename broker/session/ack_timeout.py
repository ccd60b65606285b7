"""Timeouts of acknowledgements.

A consumer that leaves deliveries unacknowledged for longer than its own timeout is cancelled. That timeout is its
argument x-consumer-timeout, its queue's argument, or the policy key consumer-timeout. For all others the option
consumer_timeout applies, which closes their channel.

Source: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from leveret.broker.core.queues.queue import Consumer
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.session.channel import Channel, tell_ended
from leveret.broker.session.unacked import GetHolder
from leveret.policies.policy_keys import MAX_TTL_MS
from leveret.protocol.faults import ChannelFault, ReplyCode
from leveret.protocol.methods import INDEX
from leveret.protocol.states import ChannelState
from leveret.storage.callbacks import call_each

log = logging.getLogger("leveret.channel")

_CANCEL: Final = INDEX["basic.cancel"]
#: Checks within one timeout: it is exceeded by at most two of their intervals.
_CHECKS: Final = 20
#: Bounds of the interval, in seconds.
_INTERVAL_MIN: Final = 0.05
_INTERVAL_MAX: Final = 60.0
#: Interval of the checks for the option consumer_timeout, in seconds, as in RabbitMQ.
_CHECK_SECONDS: Final = 60.0


class AckDeadline:
    """Watches the deliveries of one consumer, or the messages that a channel has taken from one queue by basic.get.

    Deliveries have no times: each check notes the next delivery tag, and a tag below an old enough note has timed out.

    Args:
        holder: Who holds the messages.
        timeout_ms: Timeout in milliseconds.
    """

    __slots__ = ("_channel", "_holder", "_interval", "_marks", "_timeout", "_timer", "timeout_ms")

    def __init__(self, channel: Channel, holder: Consumer | GetHolder, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._timeout = min(timeout_ms, MAX_TTL_MS) * 1000
        self._interval = min(max(self._timeout / 1_000_000 / _CHECKS, _INTERVAL_MIN), _INTERVAL_MAX)
        self._holder = holder
        self._channel = channel
        #: Times in microseconds, and the next delivery tags then.
        self._marks: deque[tuple[int, int]] = deque()
        self._timer: Timer | None = None
        self._arm()

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._channel.vhost.timers.call_later(self._interval, self._check)

    def _check(self) -> None:
        self._timer = None
        channel, marks = self._channel, self._marks
        if channel.state is not ChannelState.OPEN:
            return
        oldest = channel.unacked.oldest_of(self._holder)
        if oldest is None and not self._is_active():
            channel.unacked.remove_deadline(self._holder)
            return
        now = channel.vhost.timers.monotonic()
        while marks and (oldest is None or marks[0][1] <= oldest):
            marks.popleft()
        if oldest is not None and marks and now - marks[0][0] >= self._timeout:
            self._expire(oldest)
            return
        marks.append((now, channel.unacked.next_tag))
        self._arm()

    def _is_active(self) -> bool:
        """Return whether the holder may get further messages."""
        holder = self._holder
        return type(holder) is GetHolder or self._channel.consumers.get(holder.tag) is holder

    def _expire(self, tag: int) -> None:
        channel, holder = self._channel, self._holder
        queue = holder.queue
        log.warning(
            "delivery %d of queue '%s' in vhost '%s' was not acknowledged within %d ms (connection %s, channel %d)",
            *(tag, queue.name, queue.vhost_name, self.timeout_ms, channel.host.name, channel.number),
        )
        if type(holder) is GetHolder or not (channel.host.notifies_cancel and self._is_active()):
            channel.fail(timeout_fault(channel.number, self.timeout_ms), 0)
        else:
            self._cancel(holder)

    def _cancel(self, consumer: Consumer) -> None:
        """Cancel a consumer, return its messages, and ignore acknowledgements of them from now on."""
        channel, queue = self._channel, consumer.queue
        entries = channel.unacked.take_expired(consumer)
        channel.unacked.remove_deadline(consumer)
        del channel.consumers[consumer.tag]
        channel.shared_prefetch.remove(consumer)
        channel.send(_CANCEL, consumer.tag, True)
        tell_ended(consumer, by_broker=True)
        queue.remove_consumer(consumer)
        queue.release(consumer, entries, "abandoned")
        channel.shared_prefetch.release(len(entries))
        queue.requeue(entries, abandoned=True)


class ConsumerTimeout:
    """Checks the deliveries of all channels periodically.

    Args:
        timers: The broker's clock and timers.
        channels: Iterates over the channels of all connections.
        timeout_ms: Delivery acknowledgement timeout, in milliseconds.
    """

    def __init__(self, timers: Timers, channels: Callable[[], Iterator[Channel]], timeout_ms: int) -> None:
        self._timers = timers
        self._channels = channels
        self._timeout_ms = timeout_ms
        self._interval = min(_CHECK_SECONDS, timeout_ms / 1000)
        self._timer: Timer = timers.call_later(self._interval, self._check)

    def stop(self) -> None:
        """Stop the checks."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._timers.call_later(self._interval, self._check)
        call_each([partial(self._check_channel, each) for each in self._channels()], "for the acknowledgement timeout")

    def _check_channel(self, channel: Channel) -> None:
        now = self._timers.monotonic() / 1_000_000
        if channel.state is ChannelState.OPEN and channel.unacked.is_overdue(now, self._timeout_ms / 1000):
            channel.fail(timeout_fault(channel.number, self._timeout_ms), 0)


def timeout_fault(channel: int, timeout_ms: int) -> ChannelFault:
    """Return the fault for a delivery that is unacknowledged for too long.

    Args:
        timeout_ms: The timeout in milliseconds.
    """
    text = (
        f"delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout_ms} ms."
        " This timeout value can be configured, see consumers doc guide to learn more"
    )
    return ChannelFault(ReplyCode.PRECONDITION_FAILED, text, 0)
