"""Events and counters tell the same of what was lost."""

from __future__ import annotations

import pytest

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.stats.loss_record import DROP_REASONS, rows_of_events
from leveret.policies.dead_letter import REASONS
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, LOSSES, TOLD, Event, EventKind


def row(*events: tuple[int, int, int]) -> dict[str, int]:
    """What events of one queue say, each with its kind, count and flags, without what is 0."""
    found = rows_of_events([Event(1, 0, 7, count, 0, kind, 0, flags, 0) for kind, count, flags in events])
    return {name: value for name, value in zip(QueueCounters.LOSS_FIELDS, found.get(7, ()), strict=False) if value}


def test_all_reasons_of_queues_are_losses_for_analytics_too() -> None:
    assert set(DROP_REASONS.values()) == set(REASONS)
    assert {*DROP_REASONS, EventKind.REFUSED, EventKind.DEAD_LETTER_LOST} < LOSSES
    assert not LOSSES & {EventKind.ACK, EventKind.AUTO_ACK, EventKind.PURGED, EventKind.QUEUE_DELETED, EventKind.TICK}


@pytest.mark.parametrize(("kind", "reason"), DROP_REASONS.items())
def test_drops(kind: EventKind, reason: str) -> None:
    assert row((kind, 3, 0)) == {"lost": 3, f"drop_{reason}": 3}
    assert row((kind, 3, DEAD_LETTERED)) == {f"drop_{reason}": 3, f"dead_letter_{reason}": 3}


def test_refusals() -> None:
    assert row((EventKind.REFUSED, 3, 0)) == {"lost": 3, "refuse": 3}
    assert row((EventKind.REFUSED, 3, DEAD_LETTERED)) == {"refuse": 3, "dead_letter_maxlen": 3}
    assert row((EventKind.REFUSED, 3, TOLD)) == {"refuse": 3, "refuse_told": 3}
    lost_letter = EventKind.DEAD_LETTER_LOST, 2, TOLD | 1 << LETTER_REASON_SHIFT
    assert row((EventKind.REFUSED, 3, DEAD_LETTERED | TOLD), lost_letter) == {
        "refuse": 3,
        "refuse_told": 2,
        "dead_letter_maxlen": 3,
        "dead_letter_lost_maxlen": 2,
    }


@pytest.mark.parametrize(("number", "reason"), list(enumerate(REASONS, 1)))
def test_dead_letters_that_no_queue_took(number: int, reason: str) -> None:
    flags = number << LETTER_REASON_SHIFT
    assert row((EventKind.DEAD_LETTER_LOST, 2, flags)) == {"lost": 2, f"dead_letter_lost_{reason}": 2}


def test_those_of_older_files_have_no_reason() -> None:
    assert row((EventKind.DEAD_LETTER_LOST, 2, 0)) == {"lost": 2}


def test_what_is_no_loss() -> None:
    assert row((EventKind.PURGED, 2, 0)) == {"drop_purged": 2}
    assert row((EventKind.ACK, 2, 0), (EventKind.REQUEUE, 1, 0), (99, 1, 0)) == {}
