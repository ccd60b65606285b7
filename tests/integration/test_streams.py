"""How the HTTP API and Prometheus show streams."""

from __future__ import annotations

import re
import time

from tests.conformance.bounded import refill
from tests.conformance.http_api import Belongings, HttpApi, path
from tests.integration.management.scrapes import scrape
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.wire import Connection

STREAM: Triple = ("x-queue-type", "S", "stream")
FIRST: Triple = ("x-stream-offset", "S", "first")


def test_how_a_stream_is_shown(api: HttpApi, belongings: Belongings) -> None:
    vhost = belongings.vhost()
    arguments = {"x-queue-type": "stream", "x-max-age": "1D", "x-stream-max-segment-size-bytes": 1_000_000}
    api.check("PUT", path("queues", vhost, "s"), {"durable": True, "arguments": arguments}, 201)
    below = path("queues", vhost, "s")
    shown = api.get(below)
    assert (shown["type"], shown["state"], shown["messages"]) == ("stream", "running", 0)
    assert shown["stream"] == {
        "first_offset": None,
        "last_offset": None,
        "next_offset": 0,
        "oldest": None,
        "segment_bytes": 1_000_000,
        "max_length_bytes": None,
        "max_age": "1D",
        "removed_by_retention": 0,
    }
    before = time.time() * 1000
    body = {"routing_key": "s", "payload": "p", "payload_encoding": "string", "properties": {}}
    for _ in range(3):
        assert api.ask("POST", path("exchanges", vhost, "amq.default", "publish"), body).document == {"routed": True}
    stream = api.get(below)["stream"]
    assert (stream["first_offset"], stream["last_offset"], stream["next_offset"]) == (0, 2, 3)
    assert abs(stream["oldest"] - before) < 120_000
    wait_until(lambda: api.get(below)["messages"] == 3, "a count of 3")
    listed = api.get(path("queues", vhost))
    assert [each["stream"]["next_offset"] for each in listed] == [3]
    policy = {"pattern": ".*", "definition": {"max-length-bytes": 5}, "apply-to": "streams"}
    api.check("PUT", path("policies", vhost, "p"), policy, 201)
    assert api.get(below)["stream"]["max_length_bytes"] == 5
    assert api.get(below)["messages"] == 3
    api.check("DELETE", below, None, 204)


def test_metrics(process: LeveretProcess) -> None:
    with Connection(process.url) as connection:
        channel, stream = connection.channel(), "metrics"
        segments: Triple = ("x-stream-max-segment-size-bytes", "l", 1000)
        channel.queue_declare(stream, durable=True, arguments=[STREAM, segments])
        refill(channel, stream, *(b"%d" % number for number in range(10)))
        channel.qos(3)
        channel.consume(stream, "tag", arguments=[FIRST])
        channel.deliveries(3)
        _compare_metrics(process, stream)


def _compare_metrics(process: LeveretProcess, stream: str) -> None:
    families = "family=stream_metrics&family=stream_consumer_metrics"
    text = scrape(process, f"metrics/detailed?{families}")
    found = {
        name: float(shown)
        for name, labels, shown in re.findall(r"^leveret_detailed_(\w+)\{([^}]*)\} (\S+)$", text, re.MULTILINE)
        if f'queue="{stream}"' in labels
    }
    assert found.pop("stream_bytes") > 500
    assert found == {
        "stream_first_offset": 0,
        "stream_next_offset": 10,
        "stream_files": 1,
        "stream_retention_removed_total": 0,
        "stream_consumer_lag": 7,
    }
    text = scrape(process, "metrics/per-object")
    assert f'leveret_stream_next_offset{{queue="{stream}",vhost="/"}} 10' in text
