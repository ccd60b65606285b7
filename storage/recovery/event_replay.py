"""Replays the event log for recovery: dead messages and used sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.storage.disk.files import Files
from leveret.storage.event_format import LAST_REMOVAL, EventKind
from leveret.storage.event_log import EventPosition, event_files, file_name, read_events
from leveret.storage.recovery.checkpoint import Checkpoint
from leveret.storage.stores.segment_store import StoreState


@dataclass(slots=True)
class Replayed:
    """State from the checkpoint and the event log.

    Attributes:
        states: States of stores by qid and priority, as far as known.
        deleted: Numbers of deleted queues.
        last_qid: The highest queue number found.
        events: Number of events after the checkpoint.
        latest: Time of the last one.
        damage: Number of unreadable records and description of the damage, by path.
        lacks_events: Whether some events cannot be read, or their file is missing.
        priorities: Priorities found for each queue, by qid.
    """

    states: dict[tuple[int, int], StoreState] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    last_qid: int = 0
    events: int = 0
    latest: int = 0
    damage: dict[str, tuple[int, str]] = field(default_factory=dict)
    priorities: dict[int, set[int]] = field(default_factory=dict)
    lacks_events: bool = False


def replay(
    files: Files, directory: str, store_id: bytes, start: EventPosition, checkpoint: Checkpoint | None
) -> Replayed:
    """Apply the events after a checkpoint to its state.

    Args:
        directory: Path of the event log.
        store_id: Names the data directory.
        start: Position of the checkpoint.
        checkpoint: The checkpoint; None if there is none.
    """
    found = Replayed()
    if checkpoint is not None:
        found.last_qid = checkpoint.next_qid - 1
        for key, store in checkpoint.stores.items():
            found.states[key] = StoreState(
                dead=store.dead, next_seq=store.next_seq, redelivered_below=store.redelivered_below
            )
    damaged: dict[str, int] = {}
    for event in read_events(files, directory, store_id, start, damaged):
        if event is None:
            continue
        found.events += 1
        found.latest = max(found.latest, event.time)
        found.last_qid = max(found.last_qid, event.qid)
        if event.kind == EventKind.QUEUE_DELETED:
            found.deleted.add(event.qid)
        elif 0 < event.kind <= LAST_REMOVAL and event.length:
            state = found.states.get((event.qid, event.priority))
            if state is None:
                state = found.states[event.qid, event.priority] = StoreState()
            state.dead.add(event.seq, event.length)
            state.next_seq = max(state.next_seq, event.seq + event.length)
    for path, count in damaged.items():
        what = f"{count} of its records cannot be read; messages that they removed come back"
        found.lacks_events = found.lacks_events or count > 0
        found.damage[path] = count, what if count else "is damaged, but not in a place that is needed"
    first = f"{directory}/{file_name(start.file)}"
    if start.file and start.file not in event_files(files, directory):
        found.lacks_events = True
        found.damage[first] = 0, "is missing; messages that it removed after the last checkpoint come back"
    if checkpoint is not None and checkpoint.clean and not found.events and not found.damage:
        for key, store in checkpoint.stores.items():
            found.states[key].told = store.messages, store.body_bytes
    for qid, priority in found.states:
        found.priorities.setdefault(qid, set()).add(priority)
    return found
