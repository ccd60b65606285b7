"""How a node goes on after it could not follow."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from leveret.broker.replication import following
from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.following import Follower
from leveret.broker.replication.node_record import NodeRecord
from leveret.broker.replication.plan import Host, Plan
from leveret.broker.replication.register import State
from leveret.broker.replication.shipping import Limits

FULL = OSError(errno.ENOSPC, "No space left on device")


def database_is_full() -> sqlite3.Error:
    """The error of a database that may not grow."""
    database = sqlite3.connect(":memory:")
    database.execute("pragma max_page_count = 1")
    try:
        database.execute("create table t (x)")
    except sqlite3.Error as error:
        return error
    finally:
        database.close()
    raise AssertionError


async def test_a_full_disk_is_tried_ever_more_seldom_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan("b", tmp_path, "h:1", "secret", 2, Limits(1, 1, 0), 1 << 20)
    found = Follower(plan, NodeRecord(), Backlog(tmp_path / "backlog", 1 << 20), cast(Host, None))
    errors: list[Exception] = [FULL] * 5 + [database_is_full()] * 2 + [EOFError(), FULL]
    pauses: list[float] = []
    done = asyncio.Event()

    async def follow(host: str, port: int, epoch: int) -> None:
        raise errors[len(pauses)]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(errors):
            done.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(found.copy, "follow", follow)
    monkeypatch.setattr(following, "asyncio", cast(Any, _Asyncio(sleep)))
    with caplog.at_level("WARNING"):
        await found.follow(State(1, "a", ("a",), {"a": "127.0.0.1:1"}))
        async with asyncio.timeout(60):
            await done.wait()
    monkeypatch.undo()
    await found.abandon()
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 0.25, 1]
    assert [each.getMessage() for each in caplog.records] == [
        "cannot follow a: the disk is full; trying again",
        "the link to a is broken: EOFError; trying again",
        "cannot follow a: the disk is full; trying again",
    ]


class _Asyncio:
    """The module with another sleep()."""

    def __init__(self, sleep: Any) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)
