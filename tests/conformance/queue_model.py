"""Model of bounded queues as seen by clients on several channels: delivery tags, consumers, requeues by a channel.

The queues themselves are those of `tests.support.queue_model`, which knows no channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.queue_model import Content, Copy, ModelBroker, ModelConsumer, ModelQueue

#: More than any program publishes.
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Expected:
    """A delivery, or the answer to basic.get (without a consumer tag, with the number of messages left)."""

    tag: int
    content: Content
    redelivered: bool
    returns: int
    consumer: str | None = None
    left: int | None = None


@dataclass(eq=False)
class Member(ModelConsumer):
    """A consumer of a channel; what came by basic.get is held by a member without a consumer tag."""

    channel: ModelChannel = field(default_factory=lambda: ModelChannel())
    name: str | None = None

    def take(self, copy: Copy) -> None:
        super().take(copy)
        self.channel.number(self, copy)


@dataclass(frozen=True)
class Outstanding:
    """A message that a client has yet to settle."""

    tag: int
    queue: SharedQueue
    holder: Member
    copy: Copy


@dataclass(eq=False)
class ModelChannel:
    """Consumers and unsettled messages of one channel, and the deliveries that it expects."""

    members: dict[str, tuple[SharedQueue, Member]] = field(default_factory=dict)
    outstanding: dict[int, Outstanding] = field(default_factory=dict)
    expected: list[Expected] = field(default_factory=list)
    next_tag: int = 1
    getting: tuple[SharedQueue, Member] | None = None

    def number(self, holder: Member, copy: Copy) -> None:
        """Give a message the next delivery tag."""
        queue = self.members[holder.name][0] if holder.name else self.got_from()
        if not holder.no_ack:
            self.outstanding[self.next_tag] = Outstanding(self.next_tag, queue, holder, copy)
        delivery = Expected(self.next_tag, copy.content, copy.redelivered, copy.returns, holder.name)
        self.expected.append(delivery)
        self.next_tag += 1

    def got_from(self) -> SharedQueue:
        assert self.getting is not None
        return self.getting[0]

    def up_to(self, tag: int) -> list[int]:
        """The tags that an acknowledgement of several means."""
        return [each for each in self.outstanding if each <= tag]


class SharedQueue(ModelQueue):
    """A queue with consumers on several channels, all of them served or one at a time."""

    def __init__(self, name: str, kind: str, arguments: dict[str, Any], single_active: bool = False) -> None:
        super().__init__(name, kind, arguments)
        self.single_active = single_active
        self.consumers: list[Member] = []
        self.active: Member | None = None
        self.policy: dict[str, Any] = {}
        self.operator_policy: dict[str, Any] = {}

    def join(self, consumer: Member) -> None:
        self.consumers.append(consumer)
        if not self.single_active:
            self.ring.append(consumer)
        elif self.active is None:
            self._activate(consumer)

    def leave(self, consumer: Member) -> None:
        self.consumers.remove(consumer)
        if consumer in self.ring:
            self.ring.remove(consumer)
        consumer.blocked = False
        if consumer is self.active:
            self.active = None

    def take_over(self) -> None:
        """Let the consumer of the highest priority and the longest wait follow one that has gone."""
        if self.single_active and self.active is None and self.consumers:
            self._activate(max(self.consumers, key=lambda each: each.priority))

    def _activate(self, consumer: Member) -> None:
        self.active = consumer
        self.ring.append(consumer)


class ClientsModel(ModelBroker):
    """Queues as their clients see them."""

    def consume(self, channel: ModelChannel, queue: SharedQueue, consumer: Member) -> None:
        assert consumer.name is not None
        channel.members[consumer.name] = queue, consumer
        queue.join(consumer)
        self.serve(queue)

    def cancel(self, channel: ModelChannel, name: str) -> None:
        """basic.cancel: what the consumer has got stays with the channel."""
        queue, consumer = channel.members.pop(name)
        queue.leave(consumer)
        queue.take_over()
        self.serve(queue)

    def take(self, channel: ModelChannel, queue: SharedQueue, no_ack: bool) -> Expected | None:
        channel.getting = queue, Member(UNLIMITED, no_ack, channel=channel)
        if self.get(queue, channel.getting[1]) is None:
            return None
        got = channel.expected.pop()
        return Expected(got.tag, got.content, got.redelivered, got.returns, None, len(queue.ready))

    def settle_tags(self, channel: ModelChannel, tags: Sequence[int], outcome: str) -> None:
        """Acknowledge, reject or requeue messages.

        A queue hears of the messages of each of the channel's consumers by themselves, and of each basic.get: those of
        the gets first, then the consumers by their tags.
        """
        groups: dict[tuple[str, str, int], list[Outstanding]] = {}
        for held in [channel.outstanding.pop(tag) for tag in tags]:
            key = held.queue.name, held.holder.name or "", 0 if held.holder.name else held.tag
            groups.setdefault(key, []).append(held)
        for _, group in sorted(groups.items(), key=lambda pair: pair[0]):
            self.settle(group[0].queue, group[0].holder, [held.copy for held in group], outcome)

    def close(self, channel: ModelChannel) -> None:
        """channel.close: the consumers go, then each queue gets back all that it had given, at once."""
        queues: dict[str, tuple[SharedQueue, list[Copy]]] = {}
        for queue, consumer in channel.members.values():
            queues[queue.name] = queue, []
            queue.leave(consumer)
        for held in channel.outstanding.values():
            queues.setdefault(held.queue.name, (held.queue, []))[1].append(held.copy)
        channel.members.clear()
        channel.outstanding.clear()
        for _, (queue, copies) in sorted(queues.items()):
            queue.take_over()
            self.settle(queue, Member(channel=channel), copies, "requeue", ended=True)

    def set_policies(self, queue: SharedQueue) -> None:
        self.apply(queue, queue.policy, queue.operator_policy)

    def serve(self, queue: SharedQueue) -> None:
        """Deliver ready messages to the queue's consumers."""
        self.settle(queue, Member(), [], "acknowledge")
