"""A data directory with files of every kind: each is damaged in many ways, and the broker starts, or says why not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.damage_table import examine
from tests.crash.whole_directory import KINDS, kind_of, make_scene

#: Kinds of files that are made in other tests: those of segments that snapshots still have.
_ELSEWHERE = {"trash"}


@pytest.mark.parametrize("stop", [False, True], ids=["killed", "stopped"])
def test_any_file_may_be_damaged(tmp_path: Path, damage_step: int, stop: bool) -> None:
    scene = make_scene(tmp_path, stop)
    # Without the redo log, which a stop makes unnecessary.
    missing = KINDS.keys() - {kind_of(path) for path in scene.files} - _ELSEWHERE
    assert missing == ({"redo log"} if stop else set())
    rows = asyncio.run(examine(scene, tmp_path / "damaged", damage_step, 1))
    assert sum(row.tried for row in rows.values()) > 12_000 // damage_step
    assert [each for row in rows.values() for each in row.wrong] == []


def test_an_unknown_file_is_noticed() -> None:
    with pytest.raises(LookupError, match="q/00000001/NEW: the table of kinds does not know it"):
        kind_of("q/00000001/NEW")
