from __future__ import annotations

import json

import pytest

from tests.bench.stream import main, table
from tests.bench.stream_phases import PHASES, Phase


def test_every_phase_has_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--messages", "3000", "--body", "100", "--broker", "leveret", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert tuple(found) == PHASES
    assert [found[name]["messages"] for name in PHASES] == [3000, 9000, 750, 3000, 1500]
    for name, phase in found.items():
        assert phase["peak_rss_mib"] > 1
        assert (phase["server_cpu_us"] is None) is (name == "seek")
        assert (phase["per_second"] > 0) is (name != "seek")
    assert found["replay"]["notes"]["replayed"] == 150
    assert found["replay"]["notes"]["echo_worst_ms"] > 0
    assert 0 < found["seek"]["notes"]["median_ms"] <= found["seek"]["notes"]["worst_ms"]


def test_one_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--messages", "2000", "--only", "consume", "--broker", "leveret"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["phase", "broker"]
    assert line.split()[0] == "consume"


def test_the_table_has_a_line_for_each_phase_of_each_broker() -> None:
    seek = Phase("seek", 10, 0.0, None, None, {"segments": 4.0, "median_ms": 1.25})
    found = [("A 1", Phase("publish", 10, 5000.0, 2.5, 60.0)), ("A 1", seek), ("B 2", Phase("publish", 10, 1.0, 7, 9))]
    lines = table(found).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["publish", "A", "1"],
        ["publish", "B", "2"],
        ["seek", "A", "1"],
    ]
    assert lines[3].endswith("segments 4, median ms 1.25")


@pytest.mark.parametrize("arguments", [["--messages", "0"], ["--only", "purge"], ["--broker", "other"]])
def test_bad_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
