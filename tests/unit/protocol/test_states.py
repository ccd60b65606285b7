from __future__ import annotations

import itertools
from typing import TypeAlias

import pytest

from leveret.protocol.states import (
    CONNECTION_TRANSITIONS,
    ConnectionInput,
    ConnectionState,
    next_connection_state,
)

S: TypeAlias = ConnectionState
I: TypeAlias = ConnectionInput  # noqa: E741
PAIRS = list(itertools.product(S, I))


#: The whole table once more, by state; what is missing here must be missing there. LOST ends every state.
EXPECTED: dict[ConnectionState, dict[ConnectionInput, ConnectionState]] = {
    S.AWAIT_HEADER: {I.HEADER: S.AWAIT_START_OK},
    S.AWAIT_START_OK: {I.START_OK: S.AWAIT_TUNE_OK, I.REFUSED: S.SILENT, I.FAULT: S.CLOSING},
    S.AWAIT_TUNE_OK: {I.TUNE_OK: S.AWAIT_OPEN, I.REFUSED: S.SILENT},
    S.AWAIT_OPEN: {I.OPEN: S.RUNNING, I.REFUSED: S.SILENT, I.FAULT: S.CLOSING},
    S.RUNNING: {I.CLOSE: S.CLOSED, I.FAULT: S.CLOSING},
    S.CLOSING: {I.CLOSE: S.CLOSING, I.CLOSE_OK: S.GONE},
    S.CLOSED: {I.CLOSE: S.CLOSED, I.CLOSE_OK: S.GONE},
    S.SILENT: {},
    S.GONE: {},
}


@pytest.mark.parametrize(("state", "happened"), PAIRS)
def test_every_pair_leads_where_it_should_or_nowhere(state: S, happened: I) -> None:
    expected = S.GONE if happened is I.LOST else EXPECTED[state].get(happened)
    assert next_connection_state(state, happened) is expected


def test_the_table_has_no_other_rows() -> None:
    assert len(CONNECTION_TRANSITIONS) == sum(map(len, EXPECTED.values())) + len(S)


def reachable(start: S) -> set[S]:
    """All states that some inputs lead to."""
    reached, new = {start}, {start}
    while new:
        new = {after for state in new for happened in I if (after := next_connection_state(state, happened))} - reached
        reached |= new
    return reached


@pytest.mark.parametrize("state", S)
def test_every_state_can_reach_the_end(state: S) -> None:
    assert S.GONE in reachable(state)


def test_every_state_can_be_reached_and_left() -> None:
    assert reachable(S.AWAIT_HEADER) == set(S)
