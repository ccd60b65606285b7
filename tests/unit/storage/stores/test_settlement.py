"""How settled messages are grouped: one run is one event in the log, and one range of dead numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, StoredMessage
from leveret.storage.stores.ram_messages import RamMessages
from leveret.storage.stores.settlement import SettledRun, settled_runs
from tests.support.messages import ENVELOPE

START = 1_700_000_000_000_000
NOW = START + 60_000_000
#: Microseconds by which the waits in one run may differ, and the part of the longest one.
STEP, PART = 100_000, 10
PERSISTENT, OTHER, TRANSIENT = (
    Envelope(ENVELOPE.route, ENVELOPE.header, persistent) for persistent in (True, True, False)
)
#: Number, envelope, arrival before NOW, whether it was read from disk, whether it was delivered before, body length.
Row = tuple[int, Envelope, int, bool, bool, int]


def arrivals(rows: list[Row]) -> RamMessages:
    """Messages in memory, of which the arrivals are known."""
    ram = RamMessages(1)
    for number, envelope, age, *_ in rows:
        ram.append(number, [Message(envelope, b"")], NOW - age, 0)
    return ram


def entry_of(row: Row) -> Entry:
    number, envelope, age, is_read, redelivered, size = row
    body = b"x" * size
    message = StoredMessage(envelope, body, 0, NOW - age) if is_read else Message(envelope, body)
    return number, message, redelivered


def alike(run: SettledRun) -> tuple[bool, bool, bool]:
    return run.durable, run.stored, run.redelivered


@st.composite
def settled(draw: st.DrawFn) -> list[Row]:
    """Messages with ascending numbers and arrivals, mostly alike."""
    rows: list[Row] = []
    number, age = 0, 50_000_000
    for _ in range(draw(st.integers(2, 12))):
        number += draw(st.sampled_from([1, 1, 1, 1, 2]))
        age -= draw(st.sampled_from([0, 0, 0, 60_000, 4_000_000]))
        envelope = draw(st.sampled_from([PERSISTENT, PERSISTENT, PERSISTENT, OTHER, TRANSIENT]))
        is_read, redelivered = (draw(st.sampled_from([False, False, False, True])) for _ in range(2))
        rows.append((number, envelope, age, is_read, redelivered, draw(st.integers(0, 3))))
    return rows


@given(settled(), st.integers(1, 14), st.booleans(), st.booleans())
def test_runs_are_as_long_as_messages_are_alike(
    rows: list[Row], unwritten: int, durable: bool, persists_transient: bool
) -> None:
    ram = arrivals(rows)

    def group(entries: list[Entry]) -> list[SettledRun]:
        return settled_runs(entries, NOW, ram, durable, persists_transient, unwritten)

    entries = [entry_of(row) for row in rows]
    singles = [group([entry])[0] for entry in entries]
    at = 0
    for run in group(entries):
        members = singles[at : at + run.end - run.first]
        at += len(members)
        assert [each.first for each in members] == [*range(run.first, run.end)]
        assert {alike(each) for each in members} == {alike(run)}
        assert run.body_bytes == sum(each.body_bytes for each in members)
        waits = [each.wait for each in members]
        assert (run.wait, run.least_wait, run.waits) == (max(waits), min(waits), sum(waits))
        assert run.wait - min(waits) <= max(STEP, run.wait // PART)
        if at < len(singles):
            following = singles[at]
            is_close = run.wait - following.wait <= max(STEP, run.wait // PART)
            assert not (following.first == run.end and alike(following) == alike(run) and is_close)
    assert at == len(singles)


def test_a_single_message_says_what_it_is() -> None:
    read: Row = (1, PERSISTENT, 40, True, False, 2)
    held: Row = (2, PERSISTENT, 30, False, True, 3)
    ram = arrivals([read, held])
    (run,) = settled_runs([entry_of(read)], NOW, ram, True, False, 2)
    assert (run.first, run.end, run.wait, run.body_bytes, *alike(run)) == (1, 2, 40, 2, True, True, False)
    (run,) = settled_runs([entry_of(held)], NOW, ram, True, False, 2)
    assert (run.first, run.end, run.wait, run.body_bytes, *alike(run)) == (2, 3, 30, 3, True, False, True)
    (run,) = settled_runs([entry_of(read)], NOW, ram, False, False, 2)
    assert alike(run) == (False, True, False)
    (run,) = settled_runs([entry_of(held)], NOW, ram, False, True, 3)
    assert alike(run) == (True, True, True)
