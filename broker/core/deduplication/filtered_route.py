"""What a route leads to behind an exchange x-message-deduplication."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.duplicate_filter import DuplicateFilter
from leveret.broker.core.message_stores.backing import Backing
from leveret.broker.core.messages.origin import Publisher
from leveret.broker.core.messages.target import Definition, Remembering, Target, leave_out, names_of
from leveret.storage.message import Message
from leveret.storage.stores.segment_store import SegmentStore


class FilteredRoute(Target):
    """Takes messages, and passes on those that are not duplicates. It is made with a route, and is as valid as that.

    Args:
        vhost_name: Name of the virtual host.
        name: Name of the exchange.
        duplicates: Its filter.
        targets: Where its messages are routed to.
        histories: Exchanges x-recent-history and further filters behind it that only remember.
        counters: Counters of the exchange that the messages were published to, which counts them as routed once for
            each of its targets; None if it does not count.
    """

    __slots__ = ("_counters", "_duplicates", "_histories", "targets")

    definition_kind: ClassVar[str] = "exchange"

    def __init__(
        self,
        vhost_name: str,
        name: str,
        duplicates: DuplicateFilter,
        targets: tuple[Target, ...],
        histories: tuple[Remembering, ...] = (),
        counters: ExchangeCounters | None = None,
    ) -> None:
        super().__init__(vhost_name, name, _RouteBacking(targets, duplicates.log is not None))
        self.targets = targets
        self._duplicates = duplicates
        self._histories = histories
        self._counters = counters

    def takes_varied(self) -> bool:
        """Return whether all targets do."""
        return all(target.takes_varied() for target in self.targets) and not self._histories

    def definitions(self) -> list[Definition]:
        """Return the definitions of the exchange and of all targets."""
        return [*super().definitions(), *[each for target in self.targets for each in target.definitions()]]

    def queue_names(self) -> list[str]:
        """Return the names of the queues that its targets are or lead to."""
        return names_of(self.targets)

    def without(self, names: Collection[str | None]) -> Target | None:
        """Return the same without some queues; None if nothing is left."""
        kept = leave_out(self.targets, names)
        if not kept:
            return None
        if len(kept) == len(self.targets):
            return self
        return FilteredRoute(self.vhost_name, self.name, self._duplicates, kept, self._histories, self._counters)

    def decided(self, messages: Sequence[Message]) -> Target:
        """Return what takes those of the messages, when they are published, that are not duplicates now."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)
        return _DecidedRoute(self, passed, tuple([target.decided(passed) for target in self.targets] if passed else ()))

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember the values of messages that reach no queue."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Pass messages on; duplicates count as accepted."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)
        return self.pass_on(passed, self.targets, len(messages), publisher)

    def pass_on(
        self, passed: Sequence[Message], targets: tuple[Target, ...], count: int, publisher: Publisher | None
    ) -> int:
        """Publish messages of one envelope and size that are not duplicates.

        Args:
            passed: The messages.
            targets: Where they are routed to.
            count: How many messages there were before the duplicates were dropped.
            publisher: Who publishes them; None for the broker itself.
        Returns:
            How many of these were accepted, from the front.
        """
        taken = passed_count = len(passed)
        if not taken:
            self._count_out(-count)
            return count
        body_bytes = passed_count * len(passed[0].body)
        most, is_refused = 0, False
        for target in targets:
            if not target.deleted:
                accepted = target.publish(passed, body_bytes, publisher)
                taken, most, is_refused = min(taken, accepted), max(most, accepted), True
        if is_refused and not most:
            self._duplicates.forget(passed[0])
        self._count_out(passed_count * len(targets) - count)
        return count if taken == passed_count else taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Pass messages with different headers and sizes on."""
        passed = self._duplicates.select_varied(messages)
        if len(passed) < len(messages):
            sizes = [len(message.body) for message in passed]
            body_bytes, longest = sum(sizes), max(sizes, default=0)
        self._count_out(len(passed) * len(self.targets) - len(messages))
        if passed:
            for target in self.targets:
                if not target.deleted:
                    target.publish_varied(passed, body_bytes, longest)

    def _count_out(self, more: int) -> None:
        """Correct the number of messages that the exchange has routed, to which each message was added once."""
        if self._counters is not None:
            self._counters.publish_out += more


class _DecidedRoute(Target):
    """Takes the messages of a transaction when it is committed; which are duplicates was decided when they came.

    Args:
        route: The route.
        passed: The messages that are not duplicates.
        targets: Where they are routed to.
    """

    __slots__ = ("_passed", "_route", "_targets")

    definition_kind: ClassVar[str] = "exchange"

    def __init__(self, route: FilteredRoute, passed: Sequence[Message], targets: tuple[Target, ...]) -> None:
        super().__init__(route.vhost_name, route.name, route.stored)
        self._route = route
        self._passed = passed
        self._targets = targets

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Pass on the messages that are not duplicates."""
        return self._route.pass_on(self._passed, self._targets, len(messages), publisher)

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Do the same; transactions have no such batches."""
        self.publish(messages, body_bytes)


class _RouteBacking(Backing):
    """Where the messages of some targets are kept, as far as confirms depend on it."""

    __slots__ = ("_targets",)

    def __init__(self, targets: tuple[Target, ...], keeps_values: bool) -> None:
        stored = [target.stored for target in targets]
        # Values on disk are written before the confirm, whatever the messages are.
        super().__init__(
            keeps_values or any(each.awaits_sync for each in stored),
            keeps_values or any(each.persists_transient for each in stored),
        )
        self._targets = targets

    def stores(self) -> Collection[SegmentStore]:
        """The stores on disk of all targets."""
        return [store for target in self._targets for store in target.stored.stores()]
