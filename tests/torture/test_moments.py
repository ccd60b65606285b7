"""A small run of the comparison of restored moments with what clients knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.moments import run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_moments_are_what_clients_knew(tmp_path: Path) -> None:
    counts, _ = run(tmp_path, seconds=60, moments=4, seed=1, pace=0.05)
    assert counts["moments"] == 4
    done = ("confirmed", "acknowledged", "purged", "deleted", "dropped", "read")
    assert min(counts[what] for what in (*done, "restored by --queues", "published by --into")) > 0
