"""The image of the Spark jobs, on the volume of a broker that runs.

Building it takes minutes, so it has to be asked for: `make docker-test ARGS=--analytics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pika
import pytest

from tests.docker import image as images
from tests.docker.container import started
from tests.docker.daemon import Docker

_VOLUME = "leveret-of-the-jobs"
_JOB_SECONDS = 300.0


@pytest.fixture
def jobs(client: Docker, request: pytest.FixtureRequest, measured: dict[str, str]) -> str:
    if not request.config.getoption("--analytics"):
        pytest.skip("not asked for: ARGS=--analytics")
    name = images.build(client, "analytics")
    measured["image size, Spark jobs"] = f"{images.size(client, name) / 1e6:.0f} MB"
    return name


@pytest.fixture
def volume(client: Docker) -> Iterator[str]:
    yield _VOLUME
    client("volume", "rm", "--force", _VOLUME)


def test_job_beside_a_broker(client: Docker, image: str, jobs: str, volume: str) -> None:
    mounted = ("--volume", f"{volume}:/var/lib/leveret")
    with started(client, image, options=mounted) as container:
        container.wait_until_ready()
        with container.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True, arguments={"x-max-length": 50})
            for _ in range(80):
                channel.basic_publish("", "orders", b"x" * 100, pika.BasicProperties(delivery_mode=2))
        job = ("backlog", "--format", "json")
        shown = client(
            "run", "--rm", "--network", "host", "--cap-drop", "ALL", *mounted, jobs, *job, seconds=_JOB_SECONDS
        )
        (row,) = [json.loads(line) for line in shown.splitlines()]
        assert (row["queue"], row["messages"], row["body_bytes"]) == ("orders", 50, 5000)
        assert client("run", "--rm", "--entrypoint", "id", jobs, "--user") == "999"
        with container.connect() as connection:
            assert connection.channel().queue_declare("orders", passive=True).method.message_count == 50
