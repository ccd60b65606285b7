"""A minute of torture; and torture finds what it is there for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.torture import backups, liveness, other_broker
from tests.torture.__main__ import main

pytestmark = pytest.mark.timeout(900)


def test_a_minute(tmp_path: Path) -> None:
    assert main(["--seconds", "60", "--seed", "1", "--keep", str(tmp_path)]) == 0


def test_a_broker_that_does_not_sync_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = "none/power/at-once/1,none/power/at-once/2,none/power/at-once/3"
    arguments = ["--set", "storage.sync=off", "--seed", "5", "--history", history, "--keep", str(tmp_path)]
    assert main(arguments) == 1
    output = capsys.readouterr().out
    assert "confirmed and lost: [" in output
    again = output.splitlines()[-1]
    assert again.startswith("Again: python -m tests.torture --seed 5 --history none/power/at-once/1")
    assert again.endswith(" --set storage.sync=off")
    assert len([*tmp_path.glob("seed-5-*-steps/data/q/*/QUEUE.json")]) > 2


def test_without_faults_nobody_is_stuck(capsys: pytest.CaptureFixture[str]) -> None:
    assert liveness.main(["--seconds", "10"]) == 0
    found = re.search(r"(\d+) acknowledged, .*?(\d+) published", capsys.readouterr().out)
    assert found is not None
    assert int(found[1]) >= int(found[2]) > 0


@pytest.mark.slow
def test_what_is_restored_after_kills_is_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert backups.main(["--kills", "3"]) == 0, capsys.readouterr().out
    assert "messages compared: " in capsys.readouterr().out


def test_the_load_of_other_brokers_finds_nothing_here(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:

        def restart() -> None:
            process.kill()
            process.start()

        counts = other_broker.torture(process.url, process.http_url, restart, 5, seed=3)
    assert counts["rounds"] >= 2
    assert counts["confirmed"] > 100
    assert not [name for name in counts if "broken" in name]
