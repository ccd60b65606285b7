from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.message_stores import WriteFailures
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import QueueDeclaration
from leveret.broker.session.output import Confirms
from tests.support import methods
from tests.support.examples import examples
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_vhost
from tests.support.simulated_stores import memory_backing

CHANNEL = 7
FULL, ROOMY = (
    ClassicQueue(new_vhost(ManualLoop()), QueueDeclaration(name, True, False, None, ()), memory_backing(name))
    for name in ("full", "roomy")
)


def new_confirms() -> Confirms:
    return Confirms(CHANNEL, ChannelCounters())


def sent(confirms: Confirms) -> list[str]:
    """Return the confirms of a flush, as ``ack 3`` or ``nack 5*`` (multiple)."""
    shown = []
    for frame in confirms.flush():
        assert (frame[0], frame[1:3], frame[-1]) == (1, bytes((0, CHANNEL)), 0xCE)
        method = methods.parse(frame[7:-1])
        kind = {commands.Basic.Ack: "ack", commands.Basic.Nack: "nack"}[method.kind]
        assert kind == "ack" or method.requeue, "servers set the requeue bit"
        shown.append(f"{kind} {method.delivery_tag}{'*' if method.multiple else ''}")
    return shown


def numbered(outcomes: str) -> Confirms:
    """Return the confirms of publishes from 1 on: ``+`` accepted, ``-`` refused, ``.`` held."""
    confirms = new_confirms()
    for outcome in outcomes:
        if outcome == "+":
            confirms.accept_next(1)
        elif outcome == "-":
            confirms.refuse_next()
        else:
            confirms.hold_next(1, ())
    return confirms


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("", []),
        (".", []),
        ("..", []),
        # A lone ack is never multiple.
        ("+", ["ack 1"]),
        ("+.", ["ack 1"]),
        (".+", ["ack 2"]),
        # All acks below the first that is open are one, the rest singles.
        ("++++++++++", ["ack 10*"]),
        ("++", ["ack 2*"]),
        ("++.++", ["ack 2*", "ack 4", "ack 5"]),
        ("+.+", ["ack 1*", "ack 3"]),
        (".++", ["ack 2", "ack 3"]),
        # A pending nack bounds the acks like an open number.
        ("++--", ["ack 2*", "nack 3", "nack 4"]),
        ("++---", ["ack 2*", "nack 3", "nack 4", "nack 5"]),
        ("-++", ["ack 2", "ack 3", "nack 1*"]),
        # Nacks have no exception for a lone one.
        ("-", ["nack 1*"]),
        (".-", ["nack 2"]),
        ("--", ["nack 2*"]),
        ("-.-", ["nack 1*", "nack 3"]),
        # A lone ack stays single, whatever the nacks do.
        ("+-", ["ack 1", "nack 2"]),
        ("-+", ["ack 2", "nack 1*"]),
        # The example of tags 5-8 with 5 and 8 rejected.
        ("-++-", ["ack 2", "ack 3", "nack 1*", "nack 4"]),
    ],
)
def test_one_flush(outcomes: str, expected: list[str]) -> None:
    assert sent(numbered(outcomes)) == expected


def test_a_run_is_one_ack_whatever_its_parts() -> None:
    confirms = new_confirms()
    for count in (1, 20, 3):
        confirms.accept_next(count)
    assert sent(confirms) == ["ack 24*"]


class FailedQueues(WriteFailures):
    """Queues whose messages could not be written."""

    def __init__(self, queues: Collection[object]) -> None:
        super().__init__(queues)
        self.queues = queues

    def concern(self, queues: Collection[object]) -> bool:
        return any(queue in self.queues for queue in queues)


def written(confirms: Confirms, *failed: ClassicQueue) -> int:
    return confirms.written(FailedQueues(failed))


def test_a_held_publish_prevents_multiple_confirms_of_later_ones() -> None:
    confirms = numbered(".++")
    assert sent(confirms) == ["ack 2", "ack 3"]
    confirms.accept_next(2)
    confirms.synced(written(confirms))
    assert sent(confirms) == ["ack 5*"]


def test_only_the_first_hold_of_a_turn_needs_to_be_noted() -> None:
    confirms = new_confirms()
    one, other = (FULL,), (ROOMY,)
    assert [confirms.hold_next(count, queues) for count, queues in ((0, one), (1, one), (1, one), (1, other))] == [
        False,
        True,
        False,
        False,
    ]
    written(confirms)
    assert confirms.hold_next(1, one)


def test_publishes_that_could_not_be_written_are_refused() -> None:
    confirms = new_confirms()
    confirms.hold_next(2, (ROOMY,))
    confirms.hold_next(2, (FULL,))
    confirms.hold_next(1, (ROOMY,))
    last = written(confirms, FULL)
    assert (sent(confirms), confirms.unconfirmed_count) == (["nack 3", "nack 4"], 3)
    confirms.synced(last)
    assert (sent(confirms), confirms.unconfirmed_count) == (["ack 5*"], 0)


def settle(outstanding: dict[int, str], frames: Iterable[str]) -> list[tuple[int, str]]:
    """Apply confirms to outstanding publishes as a client does; return the settled numbers and outcomes."""
    settled = []
    for frame in frames:
        kind, _, tag = frame.partition(" ")
        number = int(tag.rstrip("*"))
        meant = [each for each in outstanding if each <= number] if tag.endswith("*") else [number]
        assert number in outstanding, f"{frame} is not outstanding"
        for each in meant:
            del outstanding[each]
            settled.append((each, kind))
    return settled


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(1, 5)),
        st.tuples(st.just("refuse"), st.just(1)),
        st.tuples(st.just("hold"), st.just(1)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("withhold"), st.just(0)),
        st.tuples(st.just("release"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=examples(300))
def test_each_number_is_settled_once_and_correctly_in_any_order(steps: list[tuple[str, int]]) -> None:
    confirms = new_confirms()
    outstanding: dict[int, str] = {}
    fate: dict[int, str] = {}
    unwritten: list[int] = []
    held: list[list[int]] = []
    withheld: list[int] = []
    for step, argument in [*steps, ("flush", 0)]:
        first = confirms.last + 1
        if step == "accept":
            confirms.accept_next(argument)
            fate |= dict.fromkeys(range(first, first + argument), "ack")
        elif step == "refuse":
            confirms.refuse_next()
            fate[first] = "nack"
        elif step == "hold":
            confirms.hold_next(1, ())
            unwritten.append(first)
        elif step == "write" and unwritten:
            assert written(confirms) == unwritten[-1]
            held.append(unwritten)
            unwritten = []
        elif step == "sync" and held:
            group = held.pop(0)
            confirms.synced(group[-1])
            fate |= dict.fromkeys(group, "ack")
        elif step == "withhold" and first not in withheld:
            withheld.append(confirms.withhold_next())
        elif step == "release" and withheld:
            confirms.release(withheld.pop(argument % len(withheld)))
        elif step == "flush":
            for number, outcome in settle(outstanding, sent(confirms)):
                assert fate.pop(number) == outcome
            assert set(fate) <= set(withheld), "all other decided publishes are confirmed at once"
            undecided = [*unwritten, *(number for group in held for number in group)]
            assert sorted(outstanding) == sorted([*undecided, *fate])
            assert confirms.unconfirmed_count == len(outstanding)
        outstanding |= dict.fromkeys(range(first, confirms.last + 1), "")


def test_what_waits_for_copies_for_too_long_is_nacked() -> None:
    confirms = numbered("..")
    confirms.written(WriteFailures())
    confirms.hold_next(1, ())
    assert confirms.refuse_held()
    assert sent(confirms) == ["nack 2*"]
    # The copies are made later.
    confirms.synced(2)
    assert sent(confirms) == []
    confirms.written(WriteFailures())
    confirms.synced(3)
    assert sent(confirms) == ["ack 3"]
    assert not confirms.refuse_held()
