"""Readers beside an observer see what the leader had at the last tick that has come, as they would beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import leveret
from leveret.analytics import register
from tests.integration.waiting import wait_until
from tests.spark.live_broker import BOUND, ON_THE_WAY, counted, live_broker
from tests.support.cluster import Etcd, Node, free_port

pytestmark = [pytest.mark.spark, pytest.mark.etcd]

ROUNDS = 3


def scanned(data_dir: Path) -> tuple[int, dict[str, list[int]]]:
    """When the tick is that a scan sees, and of each queue messages and body bytes."""
    queues = leveret.scan(data_dir, "queues", columns=["queue", "messages", "body_bytes", "as_of"]).read_all()
    (cut,) = {round(each.timestamp() * 1_000_000) for each in queues["as_of"].to_pylist()}
    return cut, {row["queue"]: [row["messages"], row["body_bytes"]] for row in queues.to_pylist()}


def test_counts_are_exact_at_a_tick_while_the_leader_is_under_load(spark: SparkSession, tmp_path: Path) -> None:
    with Etcd(tmp_path / "etcd") as etcd:
        register_url = f"etcd://127.0.0.1:{etcd.port}/test"
        settings = {
            "replication.register": register_url,
            "replication.node": "n1",
            "replication.port": free_port(),
            "replication.secret": "not much of one",
            "replication.min_copies": 1,
        }
        arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        observer = Node(tmp_path / "o", "o", register_url, {"replication.observer": "true"})
        try:
            with live_broker(tmp_path, *arguments) as broker:
                observer.start()
                observer.wait_for_role()
                wait_until(lambda: (observer.data_dir / "FORMAT").exists(), "it has a copy")
                with broker.load():
                    broker.await_full()
                    cuts = set()
                    for _ in range(ROUNDS):
                        cut, by_messages, by_queues = counted(spark, str(observer.data_dir))
                        model = broker.model_at(cut)
                        assert (by_messages, by_queues) == (model, model)
                        assert model["bounded"][0] < BOUND + ON_THE_WAY
                        register(spark).release()
                        scan_cut, by_scan = scanned(observer.data_dir)
                        assert by_scan == broker.model_at(scan_cut)
                        cuts |= {cut, scan_cut}
                assert len(cuts) > 1, "ticks come while the leader is under load"
        finally:
            observer.kill()
