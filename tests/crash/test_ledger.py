"""The ledger of the kill loop finds what it is there for: a test that cannot fail shows nothing."""

from __future__ import annotations

import pytest

from tests.crash.ledger import Ledger


def letters(*numbers: int) -> Ledger:
    """A ledger of dead letters that were confirmed in this order: odd ones of the queue `odd`, even ones of `even`."""
    ledger = Ledger("letters")
    for place, number in enumerate(numbers):
        ledger.published(number, [(0, place)], source="odd" if number % 2 else "even")
    ledger.confirmed(numbers)
    return ledger


def test_dead_letters_of_two_queues_may_come_between_each_other() -> None:
    letters(1, 3, 5, 2, 4).recovered([1, 2, 3, 4, 5])


def test_dead_letters_of_one_queue_keep_their_order() -> None:
    with pytest.raises(AssertionError, match="message 3 stands too late"):
        letters(1, 3, 5, 2, 4).recovered([1, 5, 2, 3, 4])


def test_messages_that_clients_publish_keep_their_order() -> None:
    ledger = Ledger("q")
    for number in (1, 2):
        ledger.published(number, [(0, number)])
    with pytest.raises(AssertionError, match="message 1 stands too late"):
        ledger.recovered([2, 1])


def test_a_confirmed_message_must_not_be_lost() -> None:
    with pytest.raises(AssertionError, match=r"confirmed and lost: \[3\]"):
        letters(1, 3).recovered([1])


def test_no_message_may_be_there_twice() -> None:
    with pytest.raises(AssertionError, match=r"twice: \[1\]"):
        letters(1, 3).recovered([1, 3, 1])


def test_a_message_whose_end_was_answered_must_not_come_back() -> None:
    ledger = letters(1, 3)
    ledger.leaving([1])
    ledger.ended([1])
    with pytest.raises(AssertionError, match=r"came back after their end was answered: \[1\]"):
        ledger.recovered([1, 3])
