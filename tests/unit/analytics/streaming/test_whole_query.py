from __future__ import annotations

from typing import cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from leveret.analytics.jobs.export import STARTS, run_to_end

TOO_SLOW = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect back."


class Query:
    """One that ends as given, one text for each start; None is an end without an error."""

    def __init__(self, *ends: str | None) -> None:
        self.ends = list(ends)
        self.starts = 0

    def start(self) -> StreamingQuery:
        self.starts += 1
        return cast("StreamingQuery", self)

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        end = self.ends.pop(0)
        if end is not None:
            raise StreamingQueryException(end)


def test_a_worker_that_was_too_slow_is_started_again() -> None:
    query = Query(TOO_SLOW, TOO_SLOW, None)
    run_to_end(query.start)
    assert query.starts == 3


def test_not_for_ever() -> None:
    query = Query(*[TOO_SLOW] * 2 * STARTS)
    with pytest.raises(StreamingQueryException, match="connect back"):
        run_to_end(query.start)
    assert query.starts == STARTS


def test_other_errors_are_told_at_once() -> None:
    query = Query("[STREAM_FAILED] terminated with exception: SnapshotError: disk full", None)
    with pytest.raises(StreamingQueryException, match="disk full"):
        run_to_end(query.start)
    assert query.starts == 1
