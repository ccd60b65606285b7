"""One table of what is promised of messages, proved by each kind of end of the broker: stop, kill, loss of power.

A new feature that stores messages is a scenario: a load on a simulated disk, where power can be lost at any moment, or
the clients of a process, or both. These go on while the broker ends. What is there again after an end at rest, thing by
thing, are the rows in the folder `rows`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.crash.comparison import End
from tests.crash.delayed_client import DelayedClient
from tests.crash.deleting_load import DeletingLoad
from tests.crash.process_loads import DeduplicatingClients, OneClient, QueueClients, RetryClients
from tests.crash.reader_loads import ArchiverClients, QueryClients
from tests.crash.rows.table import run_rows
from tests.crash.scenario import Scenario, run_process, run_simulated
from tests.crash.simulated_loads import (
    DeduplicatingLoad,
    DelayedLoad,
    MovingLoad,
    QueueLoad,
    RetryLoad,
    StreamLoad,
)
from tests.crash.stream_client import StreamClient

_REDO: Final = tuple(
    {"redo_segments": segments, "redo_bytes": size} for segments, size in ((0, 1), (1, 900), (3, 20_000))
)

SCENARIOS: Final = (
    Scenario("queues", QueueLoad, QueueClients, redo=_REDO, more_ends=2),
    Scenario("moves", MovingLoad),
    Scenario("moves out of deleted queues", DeletingLoad),
    Scenario("delayed", DelayedLoad, partial(OneClient, DelayedClient), share=2),
    Scenario("retries", partial(RetryLoad, "classic"), RetryClients, share=2),
    Scenario("retries of a quorum queue", partial(RetryLoad, "quorum")),
    Scenario("deduplicating", DeduplicatingLoad, DeduplicatingClients, settings={"storage.sync": "always"}, share=3),
    Scenario(
        "deduplicating, sync now and then",
        None,
        DeduplicatingClients,
        settings={"storage.sync": "interval(100)"},
        share=3,
    ),
    Scenario("deduplicating, no sync", None, DeduplicatingClients, settings={"storage.sync": "off"}, share=3),
    Scenario("streams", StreamLoad, partial(OneClient, StreamClient), share=2),
    Scenario("archiver", None, ArchiverClients, share=4),
    Scenario("named reader", None, QueryClients, share=4),
)


@pytest.mark.parametrize("end", [End.KILL, End.POWER], ids=lambda end: end.value)
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.simulated], ids=lambda each: each.name)
def test_on_a_simulated_disk(scenario: Scenario, end: End, power_cuts: int) -> None:
    # A loss of power may leave all that was written, as a kill does.
    run_simulated(scenario, end, power_cuts if end is End.POWER else max(20, power_cuts // 3))


@pytest.mark.parametrize("end", [End.KILL, End.STOP], ids=lambda end: end.value)
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.process], ids=lambda each: each.name)
def test_in_a_process(scenario: Scenario, end: End, kill_rounds: int, kill_seed: int, tmp_path: Path) -> None:
    rounds = max(1, kill_rounds // scenario.share)
    # What a stop may do wrong does not depend on its moment as much.
    run_process(scenario, end, rounds if end is End.KILL else max(1, rounds // 4), kill_seed, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", End, ids=lambda end: end.value)
def test_what_is_there_again(end: End, kill_seed: int, tmp_path: Path) -> None:
    run_rows(end, tmp_path, kill_seed)
