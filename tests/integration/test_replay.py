"""Replaying streams: the job, over HTTP and by leveretctl, with pika as the client, and over restarts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.waiting import wait_until
from tests.support.documentation import block
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        yield channel
        for name in ("log", "a", "b"):
            channel.queue_delete(name)
        channel.exchange_delete("events")


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> Management:
    return Management(process.http_url)


def fill(channel: BlockingChannel, count: int = 10, exchange: str = "") -> None:
    """The stream `log`; message n has the header n, and the key log or log.even or log.odd."""
    channel.queue_declare("log", durable=True, arguments=STREAM)
    if exchange:
        channel.exchange_declare(exchange, "topic")
        channel.queue_bind("log", exchange, "#")
    channel.confirm_delivery()
    for number in range(count):
        key = f"log.{'odd' if number % 2 else 'even'}" if exchange else "log"
        properties = pika.BasicProperties(delivery_mode=2, headers={"n": number}, message_id=f"id{number}")
        channel.basic_publish(exchange, key, b"%d" % number, properties)


def begin(api: Management, stream: str = "log", **options: Any) -> dict[str, Any]:
    body = {key.rstrip("_"): value for key, value in options.items()}
    found: dict[str, Any] = api.request("POST", "queues", "/", stream, "replay", body=body)
    return found


def job(api: Management, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.request("GET", "jobs", "/", job_id)
    return found


def ended(api: Management, begun: dict[str, Any]) -> dict[str, Any]:
    """A job when it has ended."""
    wait_until(lambda: job(api, begun["id"])["state"] != "running", "the job has ended")
    return job(api, begun["id"])


def refused(api: Management, stream: str = "log", **options: Any) -> tuple[int, str]:
    return api.refusal("POST", "queues", "/", stream, "replay", body=options)


def bodies(channel: BlockingChannel, queue: str) -> list[int]:
    """Take all messages of a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(int(got[2] or b"-1"))
    return found


def test_into_a_queue(channel: BlockingChannel, api: Management) -> None:
    fill(channel)
    channel.queue_declare("a", durable=True)
    found = ended(api, begin(api, into_queue="a", from_=2, to="7", filter="header.n=3"))
    assert (found["kind"], found["state"], found["returned"], found["scanned"]) == ("replay", "completed", 1, 5)
    assert (found["first_offset"], found["next_offset"], found["end_offset"]) == (2, 7, 7)
    assert found["options"] == {"from": 2, "to": "7", "into_queue": "a", "filter": "header.n=3"}
    assert found["by_origin"] == [{"target": "queue 'a'", "reason": "key 'log'", "count": 1}]
    method, properties, body = channel.basic_get("a", auto_ack=True)
    assert method is not None
    assert properties is not None
    assert (method.exchange, method.routing_key, body, method.redelivered) == ("", "log", b"3", False)
    assert properties.headers == {"n": 3, "x-replayed-from": "log", "x-replayed-offset": 3}
    assert (properties.message_id, properties.delivery_mode) == ("id3", 2)
    assert api.request("GET", "queues", "/", "log")["messages"] == 10


def test_into_an_exchange(channel: BlockingChannel, api: Management) -> None:
    fill(channel, exchange="events")
    channel.queue_declare("a", durable=True)
    channel.queue_bind("a", "events", "log.odd")
    found = ended(api, begin(api, into_exchange="events"))
    # Those with another key reach the stream alone, which has them.
    assert (found["returned"], found["left"]) == (
        5,
        [{"problem": "it would come back", "target": "exchange 'events'", "count": 5}],
    )
    assert bodies(channel, "a") == [1, 3, 5, 7, 9]
    assert channel.queue_declare("log", passive=True).method.message_count == 10


def test_a_dry_run(channel: BlockingChannel, api: Management) -> None:
    fill(channel, exchange="events")
    channel.queue_declare("a", durable=True)
    channel.queue_bind("a", "events", "log.odd")
    found = begin(api, into_exchange="events", from_="last", dry_run=True)
    assert (found["dry_run"], found["returned"], found["left_count"]) == (True, 1, 0)
    found = begin(api, into_exchange="events", dry_run=True)
    assert (found["returned"], found["left_count"]) == (5, 5)
    assert found["by_origin"] == [
        {"target": "exchange 'events'", "reason": "key 'log.even'", "count": 5},
        {"target": "exchange 'events'", "reason": "key 'log.odd'", "count": 5},
    ]
    assert bodies(channel, "a") == []


def test_a_full_queue_is_waited_for(channel: BlockingChannel, api: Management) -> None:
    fill(channel)
    channel.queue_declare("a", durable=True, arguments={"x-max-length": 4, "x-overflow": "reject-publish"})
    begun = begin(api, into_queue="a")
    wait_until(lambda: job(api, begun["id"])["error"] is not None, "it waits")
    found = job(api, begun["id"])
    assert (found["state"], found["error"]) == ("running", "waits: queue 'a': the queue is full")
    assert (found["returned"], found["next_offset"], found["left_count"]) == (4, 4, 0)
    read = []

    def takes_all() -> bool:
        read.extend(bodies(channel, "a"))
        return len(read) == 10

    wait_until(takes_all, "all have been sent")
    assert read == [*range(10)]
    found = ended(api, begun)
    assert (found["state"], found["error"], found["returned"]) == ("completed", None, 10)


def test_the_rate_and_cancelling(channel: BlockingChannel, api: Management) -> None:
    fill(channel, 40)
    channel.queue_declare("a", durable=True)
    begun = begin(api, into_queue="a", rate=5)
    wait_until(lambda: job(api, begun["id"])["returned"] >= 2, "some are sent")
    api.request("DELETE", "jobs", "/", begun["id"])
    found = job(api, begun["id"])
    assert found["state"] == "cancelled"
    assert 2 <= found["returned"] < 40
    assert bodies(channel, "a") == [*range(found["returned"])]
    # It goes on where it was, for those who want that.
    found = ended(api, begin(api, into_queue="a", from_=found["next_offset"]))
    assert (found["first_offset"] + found["returned"], found["state"]) == (40, "completed")


@pytest.mark.parametrize("deleted", ["a", "log"])
def test_a_deleted_queue_ends_the_job(channel: BlockingChannel, api: Management, deleted: str) -> None:
    fill(channel)
    channel.queue_declare("a", durable=True)
    begun = begin(api, into_queue="a", rate=1)
    channel.queue_delete(deleted)
    found = ended(api, begun)
    assert (found["state"], found["error"]) == ("failed", f"no queue '{deleted}' in vhost '/'")


def test_permissions(process: LeveretProcess, channel: BlockingChannel, api: Management) -> None:
    fill(channel)
    channel.queue_declare("a", durable=True)
    for name, write, read in (("replayer", "^a$", "^log$"), ("reader", "^$", ".*"), ("writer", ".*", "^$")):
        api.request("PUT", "users", name, body={"password": "x", "tags": "management"})
        api.request("PUT", "permissions", "/", name, body={"configure": "", "write": write, "read": read})

    def of(name: str) -> Management:
        return Management(process.http_url.replace("guest:guest", f"{name}:x"))

    for dry_run in (False, True):
        assert [refused(of(name), into_queue="a", dry_run=dry_run)[0] for name in ("reader", "writer")] == [401, 401]
        assert refused(of("replayer"), into_exchange="amq.topic", dry_run=dry_run)[0] == 401
    found = ended(of("replayer"), begin(of("replayer"), into_queue="a"))
    assert (found["state"], found["returned"], found["user"]) == ("completed", 10, "replayer")
    begun = begin(of("replayer"), into_queue="a", rate=1)
    api.request("PUT", "permissions", "/", "replayer", body={"configure": "", "write": "", "read": ".*"})
    found = ended(api, begun)
    assert (found["state"], "queue 'a' in vhost '/' refused for user 'replayer'" in found["error"]) == ("failed", True)


@pytest.mark.parametrize(
    ("stream", "options", "status", "reason"),
    [
        ("log", {}, 400, "one of into_exchange and into_queue is needed"),
        ("log", {"into_queue": "a", "from": "soon"}, 400, "from takes first, last, next, an offset such as 1200"),
        ("log", {"into_queue": "a", "colour": "red"}, 400, "unknown key 'colour'"),
        ("log", {"into_queue": "a", "filter": "colour=red"}, 400, "filter takes "),
        ("a", {"into_queue": "log"}, 400, "queue 'a' in vhost '/' is no stream"),
        ("log", {"into_queue": "log"}, 400, "queue 'log' in vhost '/' is source and target"),
        ("log", {"into_queue": "nowhere"}, 404, "no queue 'nowhere'"),
        ("log", {"into_exchange": "nowhere"}, 404, "no exchange 'nowhere'"),
        ("nowhere", {"into_queue": "a"}, 404, "no queue 'nowhere'"),
    ],
)
def test_bad_requests(
    channel: BlockingChannel, api: Management, stream: str, options: dict[str, Any], status: int, reason: str
) -> None:
    fill(channel, 1)
    channel.queue_declare("a", durable=True)
    found = refused(api, stream, **options)
    assert (found[0], found[1][: len(reason)]) == (status, reason)


def test_leveretctl(process: LeveretProcess, channel: BlockingChannel) -> None:
    ctl = Leveretctl(process.http_url)
    fill(channel)
    channel.queue_declare("a", durable=True)
    either = ("--filter", "header.n=0", "--filter", "property.message-id=id5", "--match", "any")
    ran = ctl("replay", "log", "--into-queue", "a", "--dry-run", "-q", *either)
    assert (ran.status, ran.out, ran.err) == (0, "Would replay 2 messages, left 0\n  2 to queue 'a', key 'log'\n", "")
    ran = ctl("replay", "log", "--into-queue", "a", "-q", "--from", "2", "--to", "8", "--limit", "3", "--rate", "1000")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("is completed. Replayed 3 messages, left 0\n  3 to queue 'a', key 'log'\n")
    assert bodies(channel, "a") == [2, 3, 4]
    ran = ctl("replay", "log", "-q", "--into-exchange", "amq.direct")
    assert ran.status == 69
    assert ran.err.endswith(
        "left 10\n  10 to exchange 'amq.direct', key 'log'\n  10 left: the exchange does not exist,"
        " or has no queue for it (exchange 'amq.direct')\n"
    )
    ran = ctl("replay", "log", "-q", "--into-queue", "a", "--rate", "1", "--detach")
    begun = ran.out.split()[1]
    ctl.output("cancel_job", begun)
    shown = ctl.output("list_jobs", "-s", "id", "kind", "queue", "state", "first_offset", "end_offset")
    assert f"{begun}\treplay\tlog\tcancelled\t0\t10\n" in shown
    assert ctl("replay", "nowhere", "--into-queue", "a").status == 69
    for options in (
        (),
        ("--into-queue", "a", "--into-exchange", "b"),
        ("--into-queue", "a", "--from", "now"),
        ("--into-queue", "a", "--rate", "0"),
        ("--into-queue", "a", "--match", "x"),
    ):
        assert ctl("replay", "log", *options).status == 65


def test_the_documented_commands(process: LeveretProcess, channel: BlockingChannel) -> None:
    ctl = Leveretctl(process.http_url)
    fill(channel, exchange="events")
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True)
    channel.queue_bind("b", "events", "log.#")
    lines = block("sh", "leveretctl replay").strip().replace("\\\n", "").splitlines()
    expected = ("Would replay 10 messages, left 0", "Replayed 10 messages, left 0", "Replayed 5 messages, left 0")
    for line, words in zip(lines, expected, strict=True):
        line = line.replace("readings.again", "a").replace("readings", "log").replace("region.eu", "log.odd")
        program, *arguments = shlex.split(line)
        assert program == "leveretctl"
        assert words in ctl.output(*arguments, "-q")


def test_a_job_goes_on_after_a_stop(tmp_path: Path) -> None:
    """tests/crash/test_interrupted_jobs.py has kills."""
    with LeveretProcess(tmp_path) as process:
        api = Management(process.http_url)
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            channel = connection.channel()
            fill(channel, 60)
            channel.queue_declare("a", durable=True)
        begun = begin(api, into_queue="a", rate=30, to=50)
        wait_until(lambda: job(api, begun["id"])["returned"] >= 20, "some are sent")
        process.stop()
        process.start()
        found = ended(api, begun)
        assert (found["state"], found["next_offset"], found["left_count"]) == ("completed", 50, 0)
        # Nothing is sent twice, and nothing is counted twice.
        assert (found["returned"], found["scanned"]) == (50, 50)
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            assert bodies(connection.channel(), "a") == [*range(50)]
