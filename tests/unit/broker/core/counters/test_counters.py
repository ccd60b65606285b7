"""What the counters of a queue add up to."""

from __future__ import annotations

import pytest

from leveret.broker.core.counters.counters import QueueCounters
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from tests.support.messages import message

#: Those that count by reason.
BY_REASON = ("dropped", "dead_lettered", "dead_letters_lost")
#: The others that only rise.
RISING = (
    "published", "refused", "delivered", "delivered_no_ack", "got", "got_no_ack", "got_empty", "redelivered",
    "acknowledged", "requeued", "dead_letters_arrived", "dead_letters_confirmed", "deduplicated", "deleted", "outlived",
    "refused_told",
)  # fmt: skip


def counted(factor: int) -> QueueCounters:
    """Counters with a number of its own in each."""
    counters = QueueCounters()
    for number, name in enumerate(RISING, 1):
        setattr(counters, name, factor * number)
    for number, name in enumerate(BY_REASON, 100):
        for step, reason in enumerate((MAXLEN, EXPIRED, REJECTED, DELIVERY_LIMIT, "purged")):
            getattr(counters, name)[reason] = factor * (number + 10 * step)
    return counters


def test_a_sum_has_all_counters_of_both() -> None:
    total, both = counted(1), counted(3)
    total.absorb(counted(2))
    for name in (*RISING, *BY_REASON):
        assert getattr(total, name) == getattr(both, name), name


def test_a_new_queue_has_counted_nothing() -> None:
    counters = QueueCounters(5)
    assert all(getattr(counters, name) == 0 for name in (*RISING, "disk_reads", "disk_writes"))
    assert not any(getattr(counters, name) for name in BY_REASON)
    assert (counters.capacity, counters.since) == (1.0, 5)


def test_a_row_has_the_counters_of_its_fields() -> None:
    row = dict(zip(QueueCounters.FIELDS, counted(1).row(1000, 2000), strict=True))
    assert row == {
        "messages_ready": 1000,
        "messages_unacknowledged": 2000,
        "publish": 1,
        "deliver": 3 - 4,
        "deliver_no_ack": 4,
        "get": 5 - 6,
        "get_no_ack": 6,
        "get_empty": 7,
        "redeliver": 8,
        "ack": 9,
        "drop": 100 + 110 + 120 + 130 + 140,
        "refuse": 2,
    }
    assert QueueCounters().row(0, 0) == (0,) * len(QueueCounters.FIELDS)


def test_a_row_of_losses_has_the_counters_of_its_fields() -> None:
    row = dict(zip(QueueCounters.LOSS_FIELDS, counted(1).current_loss_row(7), strict=True))
    assert row == {
        # All that was dropped but purged, and refused without word, without what has arrived elsewhere or may yet.
        "lost": 100 + 110 + 120 + 130 + 2 - 16 - 11 - 7,
        "drop_maxlen": 100,
        "drop_expired": 110,
        "drop_rejected": 120,
        "drop_delivery_limit": 130,
        "drop_purged": 140,
        "drop_deleted": 14,
        "refuse": 2,
        "dead_letter_maxlen": 101,
        "dead_letter_expired": 111,
        "dead_letter_rejected": 121,
        "dead_letter_delivery_limit": 131,
        "dead_letter_lost_maxlen": 102,
        "dead_letter_lost_expired": 112,
        "dead_letter_lost_rejected": 122,
        "dead_letter_lost_delivery_limit": 132,
        "refuse_told": 16,
    }


@pytest.mark.parametrize("name", ["refused", "deleted"])
def test_what_may_be_a_loss(name: str) -> None:
    counters = QueueCounters()
    assert not counters.has_losses
    setattr(counters, name, 1)
    assert counters.has_losses


def test_redelivered_messages_are_counted_among_the_delivered_ones() -> None:
    counters = QueueCounters()
    entries = [(1, message("a"), True), (2, message("b"), False)]
    # Before anything has been requeued, none is looked at.
    counters.count_delivery(entries[1:])
    counters.requeued = 1
    counters.count_delivery(entries)
    assert (counters.delivered, counters.redelivered) == (3, 1)


def test_the_capacity_follows_the_newest_samples_by_half() -> None:
    counters = QueueCounters()
    found = []
    for can_deliver in (False, False, True):
        counters.sample_capacity(can_deliver)
        found.append(counters.capacity)
    assert found == [0.5, 0.25, 0.625]
