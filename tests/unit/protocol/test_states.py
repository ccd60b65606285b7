"""Every state with every input, and what the table must not allow."""

from __future__ import annotations

from itertools import product

import pytest

from protocol.states import (
    CONNECTION_TRANSITIONS,
    ChannelState,
    ConnectionInput,
    ConnectionState,
    next_connection_state,
)

S, I = ConnectionState, ConnectionInput  # noqa: E741

#: The whole table once more, by state; what is missing here must be missing there. LOST ends every state.
EXPECTED: dict[ConnectionState, dict[ConnectionInput, ConnectionState]] = {
    S.AWAIT_HEADER: {I.HEADER: S.AWAIT_START_OK},
    S.AWAIT_START_OK: {I.START_OK: S.AWAIT_TUNE_OK, I.REFUSED: S.SILENT, I.FAULT: S.CLOSING},
    S.AWAIT_TUNE_OK: {I.TUNE_OK: S.AWAIT_OPEN, I.REFUSED: S.SILENT},
    S.AWAIT_OPEN: {I.OPEN: S.RUNNING, I.FAULT: S.CLOSING},
    S.RUNNING: {I.CLOSE: S.CLOSED, I.FAULT: S.CLOSING},
    S.CLOSING: {I.CLOSE: S.CLOSING, I.CLOSE_OK: S.GONE},
    S.CLOSED: {I.CLOSE: S.CLOSED},
    S.SILENT: {},
    S.GONE: {},
}

#: States in which the handshake is not done.
OPENING = (S.AWAIT_HEADER, S.AWAIT_START_OK, S.AWAIT_TUNE_OK, S.AWAIT_OPEN)


@pytest.mark.parametrize(("state", "happened"), list(product(S, I)))
def test_every_pair(state: ConnectionState, happened: ConnectionInput) -> None:
    expected = S.GONE if happened is I.LOST else EXPECTED[state].get(happened)
    assert next_connection_state(state, happened) is expected


def test_the_table_has_no_other_rows() -> None:
    assert len(CONNECTION_TRANSITIONS) == sum(map(len, EXPECTED.values())) + len(S)


def reachable(start: ConnectionState, without: frozenset[ConnectionInput] = frozenset()) -> set[ConnectionState]:
    """All states that some inputs lead to."""
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        for (source, happened), target in CONNECTION_TRANSITIONS.items():
            if source is state and happened not in without and target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


@pytest.mark.parametrize("state", S)
def test_every_state_can_be_reached_and_left_for_good(state: ConnectionState) -> None:
    assert state in reachable(S.AWAIT_HEADER)
    assert S.GONE in reachable(state)


def test_nothing_leads_out_of_the_end() -> None:
    assert reachable(S.GONE) == {S.GONE}
    assert reachable(S.SILENT) == {S.SILENT, S.GONE}
    assert reachable(S.CLOSED) == {S.CLOSED, S.GONE}


def test_a_connection_that_is_closing_never_runs_again() -> None:
    assert reachable(S.CLOSING) == {S.CLOSING, S.GONE}


def test_there_is_one_way_to_run() -> None:
    """Every step of the handshake is needed, in order."""
    state = S.AWAIT_HEADER
    for happened, following in zip((I.HEADER, I.START_OK, I.TUNE_OK, I.OPEN), (*OPENING[1:], S.RUNNING), strict=True):
        assert S.RUNNING not in reachable(S.AWAIT_HEADER, frozenset((happened,)))
        assert next_connection_state(state, happened) is following
        state = following


@pytest.mark.parametrize("state", S)
def test_a_client_close_is_answered_only_once_open(state: ConnectionState) -> None:
    may_close = next_connection_state(state, I.CLOSE) is not None
    assert may_close is (state in (S.RUNNING, S.CLOSING, S.CLOSED))


def test_a_channel_is_open_or_closing() -> None:
    assert {state.name for state in ChannelState} == {"OPEN", "CLOSING"}
