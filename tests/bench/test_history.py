from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bench import history


def results(**figures: float | None) -> dict[str, Any]:
    median = {"server_cpu_us": 4.0, "messages_per_second": 250_000.0, "p99_ms": 1.5, "peak_rss_mib": None} | figures
    return {
        "commit": "abc1234",
        "time": "2026-11-22T12:00:00+00:00",
        "machine": {"system": "Linux", "python": "3.11.7", "cpus": 2},
        "scenarios": [
            {"name": "16B", "brokers": {"RabbitMQ 3.10.8": {"median": {}}, "Leveret 0.1.0": {"median": median}}}
        ],
    }


def test_the_newest_results_with_one_of_the_scenarios_are_found(tmp_path: Path) -> None:
    assert history.latest(tmp_path / "missing", {"16B"}) is None
    given = {day: results(server_cpu_us=day) for day in (3, 20, 11, 25)}
    given[25]["scenarios"][0]["name"] = "other"
    times = {day: datetime(2026, 11, day, tzinfo=UTC) for day in given}
    paths = {day: history.save(found, tmp_path / "kept", times[day]) for day, found in given.items()}
    assert history.latest(tmp_path / "kept", {"16B", "1kB"}) == given[20]
    assert history.latest(tmp_path / "kept", {"1kB"}) is None
    assert paths[20].name == "20261120T000000000000Z-abc1234.json"
    assert json.loads(paths[20].read_text()) == given[20]


def test_comparison_has_both_figures_and_their_ratio() -> None:
    head, _, titles, row = history.compare(results(), results(server_cpu_us=3.0, p99_ms=None)).splitlines()
    assert head == "before: abc1234, 2026-11-22T12:00:00+00:00, 2 cpus, Linux"
    compiled = results() | {"form": "compiled"}
    assert history.compare(compiled, compiled).startswith("before: abc1234, compiled, 2026-11-22T12:00:00+00:00, ")
    assert titles.split("  ")[0] == "scenario"
    assert row.split() == ["16B", "4.00", "3.00", "0.75", "250,000", "250,000", "1.00", "1.50", *"–" * 4, "–"]


def test_scenarios_of_one_result_only_are_omitted() -> None:
    other = copy.deepcopy(results())
    other["scenarios"][0]["name"] = "new"
    assert len(history.compare(results(), other).splitlines()) == 3
    del other["scenarios"][0]["brokers"]["Leveret 0.1.0"]
    assert len(history.compare(other, other).splitlines()) == 3


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(history.save(results(), tmp_path))
    assert history.main([path, path]) == 0
    assert "1.00" in capsys.readouterr().out
    (tmp_path / "text").write_text("text")
    assert history.main([path, str(tmp_path / "text")]) == 1
    assert "not a file of results" in capsys.readouterr().err
