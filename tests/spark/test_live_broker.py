from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.analytics import register
from tests.spark.live_broker import BOUND, ON_THE_WAY, counted, live_broker

pytestmark = pytest.mark.spark

ROUNDS = int(os.environ.get("LIVE_ROUNDS", "3"))


def test_jobs_count_what_a_broker_under_load_held_at_the_tick(spark: SparkSession, tmp_path: Path) -> None:
    with live_broker(tmp_path) as broker:
        with broker.load():
            broker.await_full()
            cuts = set()
            for _ in range(ROUNDS):
                cut, by_messages, by_queues = counted(spark, broker.data_dir)
                model = broker.model_at(cut)
                assert (by_messages, cut, by_queues) == (model, cut, model)
                assert model["bounded"][0] < BOUND + ON_THE_WAY
                cuts.add(cut)
                register(spark).release()
        assert len(cuts) > 1, "ticks are a second apart, and jobs may be quicker"
        assert list((tmp_path / "data" / "snap").iterdir()) == []
