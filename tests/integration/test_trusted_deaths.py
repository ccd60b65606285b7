"""Rule 2.3.14: with the option, an x-death header of a publisher counts, as in RabbitMQ 3.10.8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.leveret_process import LeveretProcess

QUEUE, LETTERS = "queue", "letters"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("trusting")
    with LeveretProcess(directory, settings={"trust_publisher_x_death": "true"}) as process:
        yield process.url


def reject(url: str, headers: dict[str, Any]) -> dict[str, Any]:
    """Publish a message with these headers, reject it, and return the headers of its dead letter."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(LETTERS)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": LETTERS}
        channel.queue_declare(QUEUE, arguments=arguments)
        channel.basic_publish("", QUEUE, b"x", pika.BasicProperties(headers=headers))
        method, _, _ = channel.basic_get(QUEUE)
        channel.basic_reject(method.delivery_tag, requeue=False)
        _, properties, _ = channel.basic_get(LETTERS, auto_ack=True)
        found: dict[str, Any] = properties.headers
        return found


def test_2_3_14_a_count_goes_on(url: str) -> None:
    death = {"queue": QUEUE, "reason": "rejected", "count": 7}
    found = reject(url, {"x-death": [death], "x-first-death-queue": "made up"})
    assert found["x-death"] == [{**death, "count": 8}]
    assert found["x-first-death-queue"] == "made up"
    assert "x-first-death-reason" not in found


def test_2_3_14_equal_entries_are_merged(url: str) -> None:
    entry = {"queue": QUEUE, "reason": "rejected"}
    found = reject(url, {"x-death": [entry, entry]})
    assert found["x-death"] == [{**entry, "count": 3}]


def test_2_3_14_an_entry_of_another_queue_stays_behind(url: str) -> None:
    other = {"queue": "other", "reason": "expired", "count": 2}
    found = reject(url, {"x-death": [other]})
    assert [entry["queue"] for entry in found["x-death"]] == [QUEUE, "other"]
    assert found["x-death"][1] == other
    assert list(found["x-death"][0]) == sorted(found["x-death"][0])
    assert "x-first-death-reason" not in found


@pytest.mark.parametrize("made_up", ["nonsense", 5, {}, None, True])
def test_2_3_14_what_is_no_array_is_replaced(url: str, made_up: object) -> None:
    found = reject(url, {"x-death": made_up})
    assert [entry["queue"] for entry in found["x-death"]] == [QUEUE]
    assert "x-first-death-reason" not in found
