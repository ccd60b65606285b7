"""The policies of one virtual host, and putting them in force."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from broker.core.durable import DurableRecorder
from policies.keys import merge_operator
from policies.policy import Policy, winner

if TYPE_CHECKING:
    from broker.core.exchanges.base import Exchange
    from broker.core.queues.queue import Queue
    from broker.core.topology import Topology


class VirtualHostPolicies:
    """Policies and operator policies, and the queues and exchanges they are in force on.

    At most one of each is in force on a queue; definitions of several policies are never mixed.

    Args:
        topology: Has the queues and exchanges.
        recorder: Writes them into a journal.

    Attributes:
        policies: By name.
        operator_policies: By name.
    """

    def __init__(self, topology: Topology, recorder: DurableRecorder) -> None:
        self._topology = topology
        self._recorder = recorder
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def table(self, operator: bool) -> dict[str, Policy]:
        """The policies of one kind, by name."""
        return self.operator_policies if operator else self.policies

    def set(self, policy: Policy, operator: bool) -> bool:
        """Add a policy, or replace the one of its name, and put it in force at once.

        Args:
            policy: The policy.
            operator: Whether it is an operator policy.
        Returns:
            Whether there was none of its name.
        """
        table = self.table(operator)
        known = table.get(policy.name)
        table[policy.name] = policy
        if known != policy:
            self._recorder.policy_set(policy, operator)
            self._apply_all()
        return known is None

    def clear(self, name: str, operator: bool) -> bool:
        """Remove a policy; return whether it was there."""
        if self.table(operator).pop(name, None) is None:
            return False
        self._recorder.policy_cleared(name, operator)
        self._apply_all()
        return True

    def apply_to_queue(self, queue: Queue) -> None:
        """Find the policies of a queue and put them in force."""
        policy = winner(self.policies.values(), queue.name, queue.queue_type)
        operator_policy = winner(self.operator_policies.values(), queue.name, queue.queue_type)
        queue.apply_policies(policy, operator_policy, effective_definition(policy, operator_policy))

    def apply_to_exchange(self, exchange: Exchange) -> None:
        """Find the policy of an exchange and put it in force: it may name an alternate exchange."""
        policy = winner(self.policies.values(), exchange.name, "exchange")
        exchange.policy = policy
        alternate = None if policy is None else policy.definition.get("alternate-exchange")
        # The default exchange takes part in matching, and has no alternate exchange all the same.
        if exchange.name:
            self._topology.set_alternate(exchange, alternate)

    def _apply_all(self) -> None:
        for queue in cast("Iterable[Queue]", list(self._topology.queues.values())):
            self.apply_to_queue(queue)
        for exchange in list(self._topology.exchanges.values()):
            self.apply_to_exchange(exchange)


def effective_definition(policy: Policy | None, operator_policy: Policy | None) -> dict[str, object]:
    """The definitions of both, taken together; empty where neither is in force."""
    user = {} if policy is None else policy.definition
    return merge_operator(user, {} if operator_policy is None else operator_policy.definition)
