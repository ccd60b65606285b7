from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from leveret.storage.analytics.session import Session
from leveret.storage.analytics.table_reading import DAMAGE_FILE
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


def note(session: Session, path: Path) -> SnapshotLease:
    """A snapshot as a query's planning leaves it."""
    lease = take_lease(str(path), "test")
    (Path(session.directory) / os.path.basename(lease.path)).write_text(lease.path)
    return lease


def beaten(lease: SnapshotLease) -> float:
    return os.stat(f"{lease.path}/{LEASE_FILE}").st_mtime


def test_leases_are_renewed_while_jobs_run(spark: IdleOrBusy, session: Session, tmp_path: Path) -> None:
    lease = note(session, tmp_path)
    os.utime(f"{lease.path}/{LEASE_FILE}", (1, 1))
    session._renew_leases()
    assert beaten(lease) == 1
    spark.jobs.append(1)
    session._renew_leases()
    assert beaten(lease) > time.time() - 60
    session.close()


def test_snapshots_nobody_reads_are_given_up(
    spark: IdleOrBusy, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, read = note(session, tmp_path), note(session, tmp_path)
    session._renew_leases()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 700)
    os.utime(f"{idle.path}/{LEASE_FILE}", (1, time.time() - 700))
    session._renew_leases()
    assert not os.path.exists(idle.path)
    # A task has read this one lately.
    assert os.path.exists(read.path)
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
