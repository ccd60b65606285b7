"""The register's state, and who may lead: a model of nodes whose copies are lists, with the rules that nodes follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.broker.replication.register import NewerStateError, RegisterError, State, read_state
from tests.support.examples import examples

NAMES = ("a", "b", "c")
NODES = st.sampled_from(NAMES)


@dataclass
class Copy:
    """A node: its operations, each with the epoch that made it, and what it knows of where they end."""

    log: list[tuple[int, int]] = field(default_factory=list)
    #: The epoch that it has followed or led last; 0 after a crash.
    epoch: int = 0
    #: The epoch in which it thinks that it leads; 0 if it does not.
    leads: int = 0
    #: What it has heard that others have, as a leader, and whom it waits for.
    acknowledged: dict[str, int] = field(default_factory=dict)
    entering: set[str] = field(default_factory=set)
    #: The state that it has read or written last.
    state: State | None = None
    #: Whom it follows, in which epoch.
    follows: tuple[str, int] = ("", 0)


class Model(RuleBasedStateMachine):
    """Nodes that lead, follow, crash and wake up in any order; the register is always right, its lease never."""

    def __init__(self) -> None:
        super().__init__()
        self.register = State(1, "a", ("a",), {}, "s", ((1, 0),))
        self.nodes = {name: Copy() for name in NAMES}
        self.nodes["a"] = Copy(epoch=1, leads=1, state=self.register)
        self.confirmed: list[tuple[int, int]] = []
        self.made = 0

    def change(self, name: str, state: State) -> bool:
        """Compare and set, as a leader."""
        node = self.nodes[name]
        if self.register != node.state:
            node.leads = 0
            node.epoch = 0
            return False
        self.register = node.state = state
        return True

    @rule(name=NODES)
    def write(self, name: str) -> None:
        """A leader, or one that has not noticed that it is none, does something."""
        node = self.nodes[name]
        if node.leads:
            self.made += 1
            node.log.append((node.leads, self.made))

    @rule(name=NODES, leader=NODES)
    def connect(self, name: str, leader: str) -> None:
        """A node connects to what it takes for the leader, which may have woken up."""
        node, other = self.nodes[name], self.nodes[leader]
        if name == leader or node.leads or not other.leads or other.leads < node.epoch or other.state is None:
            return
        number = len(node.log)
        if not (node.epoch and other.state.may_continue(node.epoch, number) and number <= len(other.log)):
            if name in other.state.in_sync:
                without = tuple(each for each in other.state.in_sync if each != name)
                if not self.change(leader, replace(other.state, in_sync=without)):
                    return
            node.log = [*other.log]
        node.follows = leader, other.leads
        node.epoch = other.leads
        other.acknowledged[name] = len(node.log)
        other.entering.discard(name)

    @rule(name=NODES, count=st.integers(1, 3))
    def ship(self, name: str, count: int) -> None:
        """A node applies some operations of whom it follows, and acknowledges them."""
        node = self.nodes[name]
        leader, epoch = node.follows
        if leader and self.nodes[leader].leads == epoch:
            at = len(node.log)
            node.log += self.nodes[leader].log[at : at + count]
            self.nodes[leader].acknowledged[name] = len(node.log)

    @rule(name=NODES, leader=NODES)
    def wait_for(self, name: str, leader: str) -> None:
        """A leader begins to wait for a node that has caught up."""
        if self.nodes[leader].leads and name in self.nodes[leader].acknowledged:
            self.nodes[leader].entering.add(name)

    @rule(name=NODES, leader=NODES)
    def enter(self, name: str, leader: str) -> None:
        """A node that everything waits for, and that has everything, enters the set."""
        other = self.nodes[leader]
        if other.leads and name in other.entering and other.acknowledged[name] >= len(other.log):
            assert other.state is not None
            others = tuple(each for each in other.state.in_sync if each != name)
            self.change(leader, replace(other.state, in_sync=(*others, name)))

    @rule(name=NODES, leader=NODES)
    def drop(self, name: str, leader: str) -> None:
        """A leader gives a node up."""
        other = self.nodes[leader]
        if other.leads and name != leader and other.state is not None:
            self.change(leader, replace(other.state, in_sync=tuple(x for x in other.state.in_sync if x != name)))

    @rule(name=NODES)
    def confirm(self, name: str) -> None:
        """A leader confirms what its whole set has, whoever else leads by now."""
        node = self.nodes[name]
        if node.leads and node.state is not None:
            waits = ({*node.state.in_sync} | node.entering) - {name}
            common = min([len(node.log), *(node.acknowledged.get(each, 0) for each in waits)])
            self.confirmed += [each for each in node.log[:common] if each not in self.confirmed]

    @rule(name=NODES)
    def crash(self, name: str) -> None:
        """A node ends, and does not know afterwards where its copy ends."""
        node = self.nodes[name]
        self.nodes[name] = Copy(log=node.log)

    @rule(name=NODES)
    def claim(self, name: str) -> None:
        """A node of the set leads: the lease of the last leader has run out, whatever that one thinks."""
        node = self.nodes[name]
        if name not in self.register.in_sync or node.leads == self.register.epoch:
            return
        number = len(node.log) if node.epoch else 0
        # After a crash numbers begin again; the log stays.
        self.register = self.register.next(name, "", node.epoch, number)
        self.nodes[name] = Copy(node.log, self.register.epoch, self.register.epoch, state=self.register)
        if not node.epoch:
            # Numbers of the model are places in the log: nobody can go on from an earlier epoch.
            assert self.register.history == ((self.register.epoch, 0),)
            self.register = self.nodes[name].state = replace(
                self.register, history=((self.register.epoch, len(node.log)),)
            )

    @invariant()
    def nothing_that_was_confirmed_is_missing_where_somebody_may_lead(self) -> None:
        """Promise 1: whoever may lead has it."""
        for name in self.register.in_sync:
            assert {*self.confirmed} <= {*self.nodes[name].log}, name

    @invariant()
    def followers_are_prefixes(self) -> None:
        """Nobody applies operations to a copy that is another's."""
        for node in self.nodes.values():
            leader, epoch = node.follows
            if leader and node.epoch == epoch and self.nodes[leader].leads == epoch:
                assert self.nodes[leader].log[: len(node.log)] == node.log


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(300), stateful_step_count=60)


def test_a_state_is_read_as_it_was_written() -> None:
    state = State(7, "a", ("a", "b"), {"a": "h:1"}, "00ff", ((5, 10), (7, 20)), "b")
    assert read_state(state.to_json()) == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epoch": "x", "leader": "", "in_sync": []}'])
def test_a_malformed_state_is_refused(text: str) -> None:
    with pytest.raises(RegisterError):
        read_state(text)


def test_a_newer_state_is_refused() -> None:
    with pytest.raises(NewerStateError, match="upgrade this node"):
        read_state('{"version": 2}')
