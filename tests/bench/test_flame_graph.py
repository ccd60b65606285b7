from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.flame_graph import main


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root")
def test_a_graph_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1kB-confirms", "--size", "tiny", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    graph = tmp_path / "profile-1kB-confirms.svg"
    assert str(graph) in printed
    assert graph.read_text("utf-8").startswith("<?xml")
