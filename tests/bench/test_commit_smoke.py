from __future__ import annotations

from pathlib import Path

import pytest

from leveret.storage.disk.files import DiskFiles
from tests.bench.commit import SlowFiles, main, measure


def test_a_table_of_all_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.commit._LOADS", ((1, 10), (4, 8)))
    assert main(["--seconds", "0.05", "--body", "10", "--directory", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 5
    assert all(float(row.split()[3].replace(",", "")) > 0 for row in rows[1:])
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_shows(tmp_path: Path) -> None:
    slow = measure(str(tmp_path / "slow"), 1, 10, 10, 0.05, redo=True, files=SlowFiles(0.02))
    assert slow.median_ms >= 20
    fast = measure(str(tmp_path / "fast"), 1, 10, 10, 0.05, redo=True, files=DiskFiles())
    assert fast.confirms > 0
