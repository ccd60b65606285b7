"""Groups, chains and chords, and how results come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from tests.matrix.programs.celery.worker import Bench, bench
from tests.matrix.programs.vhosts import Vhost

_PATIENCE = 60


@pytest.fixture(scope="module")
def running(vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """A worker of two processes; results come back through the broker."""
    with bench(vhost.url, directory) as made, made.worker("--concurrency=2"):
        yield made


@pytest.fixture(scope="module")
def counting(vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """A worker of two processes whose results are files, since results by messages know no chords."""
    (directory / "results").mkdir()
    settings = {"task_default_queue": "chords", "result_backend": f"file://{directory / 'results'}"}
    with bench(vhost.url, directory, settings) as made, made.worker("--concurrency=2"):
        yield made


def test_result(running: Bench) -> None:
    assert running.send("add", 1, 2).get(timeout=_PATIENCE) == 3


def test_error_as_result(running: Bench) -> None:
    with pytest.raises(ValueError, match="it was to fail"):
        running.send("fail").get(timeout=_PATIENCE)


def test_group(running: Bench) -> None:
    add = running.app.signature("add")
    result = group(add.clone((number, number)) for number in range(50)).apply_async()
    assert result.get(timeout=_PATIENCE) == [2 * number for number in range(50)]


def test_chain(running: Bench) -> None:
    add = running.app.signature("add")
    result = chain(add.clone((1, 2)), add.clone((3,)), add.clone((4,))).apply_async()
    assert result.get(timeout=_PATIENCE) == 10


def test_chord(counting: Bench) -> None:
    add, total = counting.app.signature("add"), counting.app.signature("total")
    result = chord([add.clone((number, 1)) for number in range(20)], total).apply_async()
    assert result.get(timeout=_PATIENCE) == sum(range(1, 21))


def test_chord_of_groups(counting: Bench) -> None:
    add, total = counting.app.signature("add"), counting.app.signature("total")
    sums = [chord([add.clone((first, second)) for second in range(3)], total) for first in range(3)]
    result = chord(sums, total).apply_async()
    assert result.get(timeout=_PATIENCE) == sum(first + second for first in range(3) for second in range(3))


def test_link_and_link_error(running: Bench) -> None:
    note = running.app.signature("note", ("linked",), immutable=True)
    running.send("add", 1, 2, link=note)
    running.notes.wait_for("linked")
    running.send("fail", link_error=running.app.signature("note", ("after an error",), immutable=True))
    running.notes.wait_for("after an error")
