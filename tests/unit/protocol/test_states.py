from __future__ import annotations

import itertools
from typing import TypeAlias

import pytest

from leveret.protocol.states import (
    CONNECTION_TRANSITIONS,
    ChannelState,
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


def test_a_connection_that_is_closing_never_runs_again() -> None:
    assert reachable(S.CLOSING) == {S.CLOSING, S.GONE}
    assert reachable(S.CLOSED) == {S.CLOSED, S.GONE}


@pytest.mark.parametrize("state", S)
def test_a_lost_connection_is_gone(state: S) -> None:
    assert next_connection_state(state, I.LOST) is S.GONE


def test_nothing_happens_to_what_is_gone_but_its_loss() -> None:
    assert [happened for happened in I if next_connection_state(S.GONE, happened)] == [I.LOST]


def test_a_silent_connection_only_ends() -> None:
    # 1.15, 1.19, 1.21, 1.25
    assert [happened for happened in I if next_connection_state(S.SILENT, happened)] == [I.LOST]


def test_every_state_can_be_reached_and_left() -> None:
    assert reachable(S.AWAIT_HEADER) == set(S)


def test_the_way_to_an_open_connection_and_back() -> None:
    state: S | None = S.AWAIT_HEADER
    for happened in (I.HEADER, I.START_OK, I.TUNE_OK, I.OPEN, I.CLOSE):
        assert state is not None
        state = next_connection_state(state, happened)
    assert state is S.CLOSED


def test_a_connection_is_opened_in_one_order_only() -> None:
    order = [I.HEADER, I.START_OK, I.TUNE_OK, I.OPEN]
    for tried in itertools.permutations(order):
        state: S | None = S.AWAIT_HEADER
        for happened in tried:
            state = next_connection_state(state, happened) if state else None
        assert (state is S.RUNNING) == (list(tried) == order)


@pytest.mark.parametrize("state", [S.CLOSING, S.CLOSED])
def test_after_a_close_another_close_changes_nothing(state: S) -> None:
    # 1.45, 1.46
    assert next_connection_state(state, I.CLOSE) is state


def test_only_after_a_close_an_answer_ends_it() -> None:
    # 1.46
    assert [state for state in S if next_connection_state(state, I.CLOSE_OK)] == [S.CLOSING, S.CLOSED]


def test_a_channel_is_open_or_closing() -> None:
    assert [state.name for state in ChannelState] == ["OPEN", "CLOSING"]
