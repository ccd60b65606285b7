"""Each benchmark's command measures something, and notices messages that are missing, wrong or somebody else's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from leveret import compilation
from tests.bench import archive, backup, flame_graph, forms, history, lazy, scan, stream
from tests.bench.__main__ import main
from tests.bench.brokers import PEER_VARIABLE, fresh_leveret
from tests.bench.scan_readers import QUERIES
from tests.bench.stream_phases import PHASES

Command = Callable[[Sequence[str]], int]


def result(command: Command, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert command([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_given_peer_is_measured_kept_and_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--size", "tiny", "--messages", "500", "--runs", "2", "--scenario", "1kB-confirms"]
    with fresh_leveret() as broker:
        monkeypatch.setenv(PEER_VARIABLE, broker.url)
        (scenario,) = result(main, capsys, *arguments, "--only", "peer")["scenarios"]
        assert [run["messages"] for run in scenario["brokers"][broker.name]["runs"]] == [500, 500]
        assert scenario["brokers"][broker.name]["median"]["server_cpu_us"] > 0
        for _ in range(2):
            assert main([*arguments, "--results", str(tmp_path)]) == 0
    assert "ratio" in capsys.readouterr().out
    before, after = sorted(tmp_path.iterdir())
    assert history.main([str(before), str(after)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1kB-confirms")
    before.write_text("text")
    assert history.main([str(before), str(after)]) == 1


def test_an_archiver_that_was_killed_has_every_message_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(archive.main, capsys, "--messages", "2005", "--kills", "1")
    assert found["alone"]["per_second"] > 0
    assert found["beside"]["server_cpu_us"] > 0
    archiver = found["archiver"]
    assert (archiver["kills"], archiver["rows"], archiver["missing"], archiver["double"]) == (1, 2005, 0, 0)


def test_a_second_backup_sends_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(backup.main, capsys, "--gib", "0.02", "--seconds", "1")
    first, second = found["first"], found["second"]
    assert first["sent_bytes"] == first["bytes"] >= first["new_bytes"] > 20_000_000
    # The ends of the first one's files are later than its moment.
    assert 200_000 < second["sent_bytes"] < second["new_bytes"] + 2_000_000
    assert all(each["publishing"]["longest_ms"] > 0 for each in (first, second))
    assert min(found[key] for key in ("verify_seconds", "restore_seconds", "start_seconds")) > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root")
def test_a_flame_graph_is_left(tmp_path: Path) -> None:
    assert flame_graph.main(["1kB-confirms", "--size", "tiny", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "profile-1kB-confirms.svg").read_text("utf-8").startswith("<?xml")


def test_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "task", "--runs", "2", "--messages", "500", "--results", str(tmp_path)]
    (scenario,) = result(forms.main, capsys, *arguments)["scenarios"]
    expected = {"pure Python"} | ({"Leveret, compiled"} if compilation.form() == "compiled" else set())
    assert set(scenario["brokers"]) == expected
    assert all(len(each["runs"]) == 2 for each in scenario["brokers"].values())


@pytest.mark.parametrize("mode", ["lazy", "default"])
def test_every_message_of_a_backlog_comes_back(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = result(lazy.main, capsys, "--messages", "3000", "--seconds", "0.3", "--only", "leveret", "--mode", mode)
    messages, in_memory, _ = found["filled"]
    assert (messages, in_memory) == (3_000, 0 if mode == "lazy" else 3_000)
    assert all(found[key] > 0 for key in ("fill_rate", "restart_seconds", "publish_rate", "deliver_rate"))


def test_every_query_has_figures_and_the_right_answer(capsys: pytest.CaptureFixture[str]) -> None:
    readers = ("arrow", "sql", "parquet")
    found = result(scan.main, capsys, "--messages", "2005", *(f"--only={reader}" for reader in readers))
    assert tuple(found) == readers
    assert tuple(found["arrow"]) == QUERIES[1:]
    assert all(query["cpu_seconds"] > 0 for queries in found.values() for query in queries.values())
    assert found["parquet"]["json"]["answer"] == 2004 * 2005 / 2


def test_every_phase_of_a_stream_has_figures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--messages", "3000", "--body", "100", "--broker", "leveret"]
    found = {each["name"]: each for each in result(stream.main, capsys, *arguments)}
    assert tuple(found) == PHASES
    assert [found[name]["messages"] for name in PHASES] == [3000, 9000, 750, 3000, 1500]
    assert all((phase["per_second"] > 0) is (name != "seek") for name, phase in found.items())
