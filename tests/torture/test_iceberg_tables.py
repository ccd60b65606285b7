"""A small run of the comparison of Iceberg tables with a ledger, with all engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documentation import ROOT
from tests.torture.iceberg_tables import run


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_row_is_missing_or_double_after_kills(tmp_path: Path) -> None:
    found = run(tmp_path, 20_000, kills=5, keep=3600, seconds=75, spark=ROOT / "build" / "iceberg-spark", seed=1)
    assert (found.published, found.kept, found.missing, found.double, found.kills) == (20_000, 20_000, 0, 0, 5)
    assert found.sums["pyiceberg"] == found.sums["DuckDB"] == found.sums["Spark"]
    assert sum(row.rows for row in found.sums["Spark"]) == 20_000
