from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.bench.backlog import BacklogRun, Plan
from tests.bench.backlog_nodes import QueueFigures
from tests.bench.lazy import main, table

RUN = BacklogRun(
    fill_rate=1_000,
    filled=QueueFigures(5, 0, 1_000_000),
    filled_rss=50_000_000,
    disk=2_000_000_000,
    restart_seconds=0.5,
    restart_rss=40_000_000,
    first_seconds=0.01,
    publish_rate=10,
    deliver_rate=20,
    used_rss=[60_000_000, 58_000_000],
    left=3,
    drain_rate=30,
    drained_rss=51_000_000,
)


@pytest.mark.parametrize("mode", ["lazy", "default"])
def test_every_message_of_the_backlog_comes_back(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--messages", "3000", "--seconds", "0.3", "--only", "leveret", "--mode", mode, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["mode"] == mode
    messages, in_memory, _ = found["filled"]
    assert messages == 3_000
    assert in_memory == (0 if mode == "lazy" else 3_000)
    assert found["disk"] > 3_000_000
    for key in ("fill_rate", "restart_seconds", "first_seconds", "publish_rate", "deliver_rate"):
        assert found[key] > 0
    assert found["used_rss"][0] > 1_000_000


def test_table_has_a_column_for_each_run_and_nothing_where_nothing_was_left() -> None:
    plan = Plan("lazy", 5, 1_000, 1.0)
    lines = table([("Leveret 1", plan, RUN), ("Other 2", plan, replace(RUN, left=0))]).splitlines()
    assert lines[0].split() == ["Leveret", "1", "Other", "2"]
    assert lines[1].split() == ["queue", "mode", "lazy", "lazy"]
    assert [line.split()[-2:] for line in lines if line.startswith("drain")] == [["30", "–"]]
    assert len(lines) == 16


def test_bad_usage_is_refused() -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--messages", "0"])
    assert refused.value.code == 2
