"""Named consumers of streams: with pika, over restarts, over HTTP, by leveretctl, and in Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

STREAM = {"x-queue-type": "stream"}
NAME = "x-stream-consumer-name"


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> Management:
    return Management(process.http_url)


def open_channel(process: LeveretProcess) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(process.url)).channel()
    channel.basic_qos(prefetch_count=50)
    return channel


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[BlockingChannel]:
    """A channel, and a stream `log` of ten messages."""
    channel = open_channel(process)
    fill(channel)
    yield channel
    channel.queue_delete("log")
    channel.connection.close()


def fill(channel: BlockingChannel, count: int = 10, start: int = 0) -> None:
    channel.queue_declare("log", durable=True, arguments=STREAM)
    with channel.connection.channel() as publishing:
        publishing.confirm_delivery()
        for number in range(start, start + count):
            publishing.basic_publish("", "log", b"%d" % number)


def consume(
    channel: BlockingChannel, count: int, *, name: str = "billing", tag: str = "c", **arguments: Any
) -> list[int]:
    """Consume some messages, acknowledge all of them, and cancel; return their numbers."""
    found: list[int] = []
    given = {NAME: name, **{f"x-stream-{key}": value for key, value in arguments.items()}}

    def read(_: Any, method: Any, __: Any, body: bytes) -> None:
        if len(found) < count:
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)

    channel.basic_consume("log", read, consumer_tag=tag, arguments=given)
    while len(found) < count:
        channel.connection.process_data_events(1)
    # pika gives back what it has fetched and not handed out.
    channel.basic_cancel(tag)
    return found


def names(api: Management) -> dict[str, dict[str, Any]]:
    found: list[dict[str, Any]] = api.request("GET", "queues", "/", "log", "consumer-names")
    return {each["name"]: each for each in found}


def refused(api: Management, method: str, *path: str, body: Any = None) -> tuple[int, str]:
    return api.refusal(method, "queues", "/", *path, body=body)


def test_a_name_goes_on(channel: BlockingChannel, process: LeveretProcess, api: Management) -> None:
    assert consume(channel, 4, offset="first") == [0, 1, 2, 3]
    wait_until(lambda: names(api)["billing"]["active"] is None, "the consumer is gone")
    shown = names(api)["billing"]
    assert (shown["next_offset"], shown["lag"], shown["missed"], shown["waiting"]) == (4, 6, 0, 0)
    other = open_channel(process)
    assert consume(other, 3) == [4, 5, 6]
    assert consume(other, 2, name="reports", offset=8) == [8, 9]
    assert consume(other, 1, offset=1) == [1]
    other.connection.close()
    assert {name: each["next_offset"] for name, each in names(api).items()} == {"billing": 2, "reports": 10}


def test_consumers_take_turns(channel: BlockingChannel, process: LeveretProcess, api: Management) -> None:
    first, second = open_channel(process), open_channel(process)
    got: dict[str, list[int]] = {"first": [], "second": []}
    for each, tag in ((first, "first"), (second, "second")):
        each.basic_qos(prefetch_count=2)

        def note(_: Any, method: Any, __: Any, body: bytes, tag: str = tag) -> None:
            got[tag].append(int(body))

        each.basic_consume("log", note, consumer_tag=tag, arguments={NAME: "billing", "x-stream-offset": "first"})
    while len(got["first"]) < 2:
        first.connection.process_data_events(1)
    second.connection.process_data_events(0)
    first.basic_ack(1)
    first.queue_declare("log", passive=True)
    details = api.request("GET", "queues", "/", "log")["consumer_details"]
    status = {each["consumer_tag"]: (each["active"], each["activity_status"]) for each in details}
    assert status == {"first": (True, "single_active"), "second": (False, "waiting")}
    shown = names(api)["billing"]
    assert (shown["active"]["consumer_tag"], shown["waiting"], got["second"]) == ("first", 1, [])
    first.connection.close()
    while len(got["second"]) < 2:
        second.connection.process_data_events(1)
    assert got["second"] == [1, 2]
    second.connection.close()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "{unacceptable_type,signedint}"),
        ("", '"expected 1 to 255 bytes of UTF-8"'),
        ("x" * 256, '"expected 1 to 255 bytes of UTF-8"'),
    ],
)
def test_bad_names(channel: BlockingChannel, value: Any, reason: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.connection.channel().basic_consume("log", lambda *_: None, arguments={NAME: value})
    where = f"invalid arg '{NAME}' for queue 'log' in vhost '/'"
    assert (caught.value.reply_code, caught.value.reply_text) == (406, f"PRECONDITION_FAILED - {where}: {reason}")


def test_a_classic_queue_has_no_names(channel: BlockingChannel, api: Management) -> None:
    channel.queue_declare("classic")
    with pytest.raises(
        ChannelClosedByBroker, match=f"invalid arg '{NAME}' for queue 'classic' .* rabbit_classic_queue"
    ):
        channel.connection.channel().basic_consume("classic", lambda *_: None, arguments={NAME: "a"})
    assert refused(api, "GET", "classic", "consumer-names") == (
        400,
        "queue 'classic' in vhost '/' is no stream: its consumers have no names",
    )
    channel.queue_delete("classic")


def test_names_over_http(channel: BlockingChannel, api: Management) -> None:
    path = ("queues", "/", "log", "consumer-names")
    api.request("PUT", *path, "a/b", body={"next": "first"})
    api.request("PUT", *path, "late", body={"next": 99})
    api.request("PUT", *path, "a/b", body={"next": 4})
    assert {name: (each["next_offset"], each["lag"]) for name, each in names(api).items()} == {
        "a/b": (4, 6),
        "late": (99, 0),
    }
    assert api.request("GET", *path, "a/b")["next_offset"] == 4
    api.request("DELETE", *path, "late")
    assert refused(api, "GET", *path[2:], "late") == (404, "no consumer name 'late' in queue 'log' in vhost '/'")
    assert refused(api, "DELETE", *path[2:], "late")[0] == 404
    assert refused(api, "PUT", *path[2:], "x" * 300, body={"next": 1})[0] == 400
    code, reason = refused(api, "PUT", *path[2:], "a/b", body={"next": "soon"})
    assert (code, reason[:26]) == (400, "next takes first, last, ne")
    channel.basic_consume("log", lambda *_: None, arguments={NAME: "a/b"})
    in_use = "consumer name 'a/b' of queue 'log' in vhost '/' in use: stop its consumers first"
    assert refused(api, "PUT", *path[2:], "a/b", body={"next": 1}) == (400, in_use)
    assert refused(api, "DELETE", *path[2:], "a/b") == (400, in_use)


def test_names_need_permission_to_read(channel: BlockingChannel, process: LeveretProcess, api: Management) -> None:
    api.request("PUT", "users", "writer", body={"password": "w", "tags": "management"})
    rights = {"configure": ".*", "write": ".*", "read": "^other$"}
    api.request("PUT", "permissions", "/", "writer", body=rights)
    writer = Management(process.http_url.replace("guest:guest", "writer:w"))
    for method, *path in (("GET",), ("GET", "a"), ("PUT", "a"), ("DELETE", "a")):
        code, reason = refused(writer, method, "log", "consumer-names", *path, body={"next": 1})
        assert (code, reason) == (401, "Access refused.")
    api.request("DELETE", "users", "writer")


def test_names_by_leveretctl(channel: BlockingChannel, process: LeveretProcess, api: Management) -> None:
    ctl = Leveretctl(process.http_url)
    ctl.output("set_consumer_name", "log", "billing", "2")
    assert consume(channel, 1) == [2]
    wait_until(lambda: names(api)["billing"]["active"] is None, "the consumer is gone")
    table = ctl.output("list_consumer_names", "log", "-s").splitlines()
    assert table[-1].split("\t")[:5] == ["billing", "3", "7", "0", "0"]
    found = ctl("set_consumer_name", "log", "billing", "soon")
    assert (found.status, "takes first, last, next, an offset" in found.err) == (65, True)
    ctl.output("delete_consumer_name", "log", "billing")
    assert names(api) == {}
    gone = ctl("delete_consumer_name", "log", "billing")
    assert "no consumer name 'billing' in queue 'log'" in gone.err


def test_names_in_prometheus(channel: BlockingChannel, process: LeveretProcess, api: Management) -> None:
    api.request("PUT", "queues", "/", "log", "consumer-names", "slow", body={"next": 3})
    address = f"{process.prometheus_url}/metrics/detailed?family=stream_name_metrics"
    with urllib.request.urlopen(address) as response:
        lines = response.read().decode().splitlines()
    found = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if 'consumer_name="slow"' in line}
    assert found == {
        "leveret_detailed_stream_name_next_offset": "3.0",
        "leveret_detailed_stream_name_lag": "7.0",
        "leveret_detailed_stream_name_missed_total": "0.0",
    }
