from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from broker.session.confirms import Confirms
from tests.support import methods

CHANNEL = 7


def sent(confirms: Confirms) -> list[str]:
    """What a flush sends, as ``ack 3`` or ``nack 5*`` (multiple)."""
    shown = []
    for frame in confirms.flush():
        assert (frame[0], frame[1:3], frame[-1]) == (1, bytes((0, CHANNEL)), 0xCE)
        method = methods.parse(frame[7:-1])
        kind = {commands.Basic.Ack: "ack", commands.Basic.Nack: "nack"}[method.kind]
        assert kind == "ack" or method.requeue, "servers set the requeue bit"
        shown.append(f"{kind} {method.delivery_tag}{'*' if method.multiple else ''}")
    return shown


def numbered(outcomes: str) -> Confirms:
    """A channel's publishes from 1 on: ``+`` accepted, ``-`` refused, ``.`` held."""
    confirms = Confirms(CHANNEL)
    for outcome in outcomes:
        if outcome == "+":
            confirms.accept_next(1)
        elif outcome == "-":
            confirms.refuse_next()
        else:
            confirms.hold_next()
    return confirms


def test_publishes_are_numbered_from_one() -> None:
    confirms = Confirms(CHANNEL)
    assert confirms.last == 0
    confirms.accept_next(3)
    assert confirms.last == 3
    assert confirms.hold_next() == 4
    confirms.refuse_next()
    assert confirms.last == 5


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


def test_the_example_after_an_earlier_flush() -> None:
    confirms = numbered("++++")
    assert sent(confirms) == ["ack 4*"]
    confirms.refuse_next()
    confirms.accept_next(2)
    confirms.refuse_next()
    assert sent(confirms) == ["ack 6", "ack 7", "nack 5*", "nack 8"]


def test_what_was_sent_is_not_sent_again() -> None:
    confirms = numbered("+-.")
    sent(confirms)
    assert sent(confirms) == []


def test_a_run_is_one_ack_whatever_its_parts() -> None:
    confirms = Confirms(CHANNEL)
    for count in (1, 20, 3):
        confirms.accept_next(count)
    assert sent(confirms) == ["ack 24*"]


def test_held_publishes_are_confirmed_in_any_order() -> None:
    confirms = numbered("...")
    confirms.accept_held(2)
    assert sent(confirms) == ["ack 2"]
    confirms.accept_held(3)
    confirms.accept_held(1)
    assert sent(confirms) == ["ack 3*"]


def test_a_held_one_keeps_later_ones_single() -> None:
    confirms = numbered(".++")
    assert sent(confirms) == ["ack 2", "ack 3"]
    confirms.accept_next(2)
    confirms.accept_held(1)
    assert sent(confirms) == ["ack 5*"]


def test_a_publish_is_held_once() -> None:
    confirms = numbered(".")
    confirms.accept_held(1)
    with pytest.raises(KeyError):
        confirms.accept_held(1)


def settle(outstanding: dict[int, str], frames: Iterable[str]) -> list[tuple[int, str]]:
    """Apply frames as a client does, to what it has outstanding; which numbers they settle, and how."""
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
        st.tuples(st.just("release"), st.integers(0, 10)),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_whatever_the_order_each_number_is_settled_once_and_rightly(steps: list[tuple[str, int]]) -> None:
    confirms = Confirms(CHANNEL)
    outstanding: dict[int, str] = {}
    fate: dict[int, str] = {}
    held: list[int] = []
    for step, argument in [*steps, ("flush", 0)]:
        first = confirms.last + 1
        if step == "accept":
            confirms.accept_next(argument)
            fate |= dict.fromkeys(range(first, first + argument), "ack")
        elif step == "refuse":
            confirms.refuse_next()
            fate[first] = "nack"
        elif step == "hold":
            held.append(confirms.hold_next())
        elif step == "release" and held:
            number = held.pop(argument % len(held))
            confirms.accept_held(number)
            fate[number] = "ack"
        elif step == "flush":
            for number, outcome in settle(outstanding, sent(confirms)):
                assert fate.pop(number) == outcome
            assert fate == {}, "all that is decided is told at once"
            assert sorted(outstanding) == sorted(held)
        outstanding |= dict.fromkeys(range(first, confirms.last + 1), "")
