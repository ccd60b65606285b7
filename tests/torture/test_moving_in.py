"""A small move between two Leverets, with a kill of everything; and its ledger finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.support.leveret_process import LeveretProcess
from tests.torture.moving_in import Move
from tests.torture.moving_lines import Line


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_kinds_of_queues_are_moved_while_everything_is_killed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    with LeveretProcess(tmp_path / "there") as there:

        def restart() -> None:
            there.restart(crash=True)

        move = Move(there.url, there.http_url, restart, tmp_path / "here", sets=1, messages=3000, seed=1)
        try:
            move.run(kills=1, pause=1)
        finally:
            move.close()
        assert move.wrong == []
        assert sum(move.kills.values()) == 4
        assert all(each["result"] == "moved" for each in move.report)
        assert all(len(line.seen) == len(line.accepted) > 200 for line in move.lines if line.kind == "plain")


def see(line: Line, number: int, *, redelivered: bool = False, body: bytes | None = None, priority: int = 0) -> None:
    properties = line.properties(number)
    properties.priority = priority or properties.priority
    line.see(properties, line.body(number) if body is None else body, redelivered, False)


@pytest.fixture
def line() -> Line:
    made = Line("plain", 0, 10, lambda: "Leveret")
    made.accepted |= {1, 2, 3}
    return made


def test_the_ledger_counts_what_comes_twice(line: Line) -> None:
    for number in (1, 2, 1, 2, 3):
        see(line, number, redelivered=number == 2)
    assert line.check() == []
    assert line.twice == {
        "moved, or dead-lettered, twice; the last kill was of Leveret": 1, "its consumer's connection ended": 1
    }  # fmt: skip


def test_the_ledger_finds_what_is_lost_late_and_changed(line: Line) -> None:
    see(line, 3)
    see(line, 1)
    assert line.check() == ["lost 1: [2]", "reordered 1: [1]"]
    see(line, 2, body=b"2:?")
    assert line.check() == ["changed 2: body", "reordered 1: [1]"]
    other = Line("plain", 0, 10, lambda: "Leveret")
    other.see(pika.BasicProperties(), other.body(1), False, False)
    assert other.check() == ["changed 1: delivery_mode, message_id, n, text, table"]
