from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from leveret.analytics.spark.session import Session
from leveret.analytics.tables.table_reading import DAMAGE_FILE
from leveret.storage.snapshots.lease import LEASE_FILE, SnapshotLease, take_lease


class IdleOrBusy:
    """As much of a Spark session as it takes to tell whether jobs are running."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.sparkContext = self

    def statusTracker(self) -> IdleOrBusy:  # noqa: N802
        return self

    def getActiveJobsIds(self) -> list[int]:  # noqa: N802
        return self.jobs


@pytest.fixture
def spark() -> IdleOrBusy:
    return IdleOrBusy()


@pytest.fixture
def session(spark: IdleOrBusy) -> Session:
    return Session(cast("SparkSession", spark))


def note(session: Session, path: Path, seconds: float = 3600) -> SnapshotLease:
    """A snapshot as a query's planning leaves it."""
    lease = take_lease(str(path), "test")
    (Path(session.directory) / f"{os.path.basename(lease.path)}.lease").write_text(f"{seconds} {lease.path}")
    return lease


def beaten(lease: SnapshotLease) -> float:
    return os.stat(f"{lease.path}/{LEASE_FILE}").st_mtime


def test_leases_are_renewed_while_nothing_runs(session: Session, tmp_path: Path) -> None:
    """So that a data frame can be read again after ten minutes, when the lease would have timed out."""
    lease = note(session, tmp_path)
    os.utime(f"{lease.path}/{LEASE_FILE}", (1, 1))
    session._renew_leases()
    assert beaten(lease) > time.time() - 60
    session.close()


def test_snapshots_that_are_not_read_for_long_are_released(
    spark: IdleOrBusy, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, longer, read = note(session, tmp_path), note(session, tmp_path, 86_400), note(session, tmp_path)
    leases = (usual, longer, read)

    def after(seconds: float) -> list[bool]:
        monkeypatch.setattr(time, "monotonic", lambda: start + seconds)
        session._renew_leases()
        return [os.path.exists(each.path) for each in leases]

    start = time.monotonic()
    assert after(0) == after(700) == after(3500) == [True, True, True]
    # A task reads this one, and renews its lease.
    os.utime(f"{read.path}/{LEASE_FILE}", (1, 1))
    assert after(3590) == [True, True, True]
    assert after(3610) == [False, True, True]
    assert after(7300) == [False, True, False]
    spark.jobs.append(1)
    assert after(80_000) == [False, True, False]
    spark.jobs.clear()
    assert after(160_000) == [False, True, False]
    assert after(170_000) == [False, False, False]
    session.close()


def test_damage_that_no_snapshot_tells_of(session: Session) -> None:
    with open(f"{session.directory}/{DAMAGE_FILE}", "w", encoding="utf-8") as file:
        file.write('{"path": "a", "damaged": 3}\n{"path": "a", "damaged": 2}\n{"path": "b", "damaged": 1}\n')
    assert session.damaged == 4
    session.release()
    assert session.damaged == 4
    session.close()


def test_at_the_end_all_is_given_up(session: Session, tmp_path: Path) -> None:
    lease = note(session, tmp_path)
    for _ in range(2):
        with open(f"{lease.path}/{DAMAGE_FILE}", "a", encoding="utf-8") as file:
            file.write('{"path": "a", "table": "messages", "damaged": 3}\n')
    assert session.damaged == 3
    session.close()
    session.close()
    assert not os.path.exists(lease.path)
    assert not os.path.exists(session.directory)
