"""The policies of one virtual host, and their application to queues and exchanges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.recorder import DurableRecorder
from leveret.broker.core.vhosts.topology import Topology
from leveret.policies.policy import Policy, find_policy, merge_operator
from leveret.protocol.faults import ConnectionFault

log = logging.getLogger("leveret.exchange")


class VirtualHostPolicies:
    """The policies and operator policies of one virtual host.

    At most one of each applies to a queue; several policies are never merged.

    Args:
        topology: The queues and exchanges of the virtual host.
        recorder: Records policies durably.
        keep_values: Keeps what an exchange remembers where its policy says; returns whether that has changed.

    Attributes:
        policies: Policies by name.
        operator_policies: Operator policies by name.
    """

    def __init__(
        self,
        topology: Topology,
        recorder: DurableRecorder,
        keep_values: Callable[[Exchange], bool] = lambda exchange: False,
    ) -> None:
        self._topology = topology
        self._recorder = recorder
        self._keep_values = keep_values
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def table(self, operator: bool) -> dict[str, Policy]:
        """Return the policies of one kind by name."""
        return self.operator_policies if operator else self.policies

    def set(self, policy: Policy, operator: bool) -> bool:
        """Add or replace a policy, and apply it at once.

        Args:
            operator: Whether it is an operator policy.
        Returns:
            Whether it is new.
        """
        is_new, steps = self.set_in_steps(policy, operator)
        _exhaust(steps)
        return is_new

    def set_in_steps(self, policy: Policy, operator: bool) -> tuple[bool, Iterator[None]]:
        """Like set(), but existing queues and exchanges get the policy step by step; new ones get it at once.

        Returns:
            Whether it is new, and the steps, one per queue or exchange.
        """
        table = self.table(operator)
        known = table.get(policy.name)
        table[policy.name] = policy
        if known == policy:
            return False, iter(())
        self._recorder.policy_set(policy, operator)
        return known is None, self._apply([policy] if known is None else [known, policy])

    def clear(self, name: str, operator: bool) -> bool:
        """Remove a policy; return whether it existed."""
        steps = self.clear_in_steps(name, operator)
        if steps is None:
            return False
        _exhaust(steps)
        return True

    def clear_in_steps(self, name: str, operator: bool) -> Iterator[None] | None:
        """Like clear(), in steps as with set_in_steps(); return None if the policy does not exist."""
        known = self.table(operator).pop(name, None)
        if known is None:
            return None
        self._recorder.policy_cleared(name, operator)
        return self._apply([known])

    def apply_to_queue(self, queue: Queue) -> None:
        """Find and apply the policies of a queue."""
        policy = find_policy(self.policies.values(), queue.name, queue.queue_type)
        operator_policy = find_policy(self.operator_policies.values(), queue.name, queue.queue_type)
        queue.apply_policies(policy, operator_policy, effective_definition(policy, operator_policy))

    def apply_to_exchange(self, exchange: Exchange) -> None:
        """Find and apply the policy of an exchange: its keys are those that exchanges read."""
        policy = exchange.policy = self._policy_of(exchange)
        alternate = None if policy is None else policy.definition.get("alternate-exchange")
        # Policies match the default exchange, but it never has an alternate exchange.
        if exchange.name:
            self._topology.set_alternate(exchange, alternate)
        exchange.apply_policy({} if policy is None else policy.definition)
        self._move_values(exchange)

    def missing_letter_exchange(self, queue: Queue) -> str | None:
        """Return the dead-letter exchange in the settings of a queue if it does not exist, so that letters are lost."""
        name = queue.settings.dead_letter_exchange
        return None if name is None or name in self._topology.exchanges else name

    def definition_of(self, exchange: Exchange) -> Mapping[str, Any]:
        """Return the definition of the policy of an exchange, which need not be in force yet; empty without one."""
        policy = self._policy_of(exchange)
        return {} if policy is None else policy.definition

    def _policy_of(self, exchange: Exchange) -> Policy | None:
        return find_policy(self.policies.values(), exchange.name, "exchange")

    def _move_values(self, exchange: Exchange) -> None:
        """Keep what an exchange remembers where its policy says."""
        try:
            has_moved = self._keep_values(exchange)
        except ConnectionFault as fault:
            # The policy is in force nevertheless; the next start tries again.
            log.error("%s", fault.explanation)
            return
        if has_moved:
            self._recorder.exchange_declared(exchange)

    def _apply(self, changed: Sequence[Policy]) -> Iterator[None]:
        """Reapply policies to all queues and exchanges that the changed policies match."""
        for queue in list(self._topology.queues.values()):
            if not queue.deleted and any(policy.matches(queue.name, queue.queue_type) for policy in changed):
                self.apply_to_queue(queue)
            yield
        exchanges = self._topology.exchanges
        for exchange in list(exchanges.values()):
            exists = exchanges.get(exchange.name) is exchange
            if exists and any(policy.matches(exchange.name, "exchange") for policy in changed):
                self.apply_to_exchange(exchange)
            yield


def effective_definition(policy: Policy | None, operator_policy: Policy | None) -> dict[str, object]:
    """Merge the definitions of a policy and an operator policy; empty if there is neither."""
    user = {} if policy is None else policy.definition
    return merge_operator(user, {} if operator_policy is None else operator_policy.definition)


def _exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass
