"""Returning dead letters to where they come from: the job, over HTTP and by leveretctl, and over restarts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.waiting import wait_until
from tests.support.documentation import block
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Channel, Connection

DLX = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "dlq")]


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url) as opened:
        channel = opened.channel()
        yield channel
        for name in ("dlq", "a", "b", "copy"):
            channel.queue_delete(name)


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> Management:
    return Management(process.http_url)


def begin(api: Management, queue: str = "dlq", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.request("POST", "queues", "/", queue, "return-messages", body=options)
    return found


def ended(api: Management, job: dict[str, Any]) -> dict[str, Any]:
    """A job when it has ended."""
    found = job

    def has_ended() -> bool:
        nonlocal found
        found = api.request("GET", "jobs", "/", job["id"])
        return bool(found["state"] != "running")

    wait_until(has_ended, "the job has ended")
    return found


def run(api: Management, **options: Any) -> dict[str, Any]:
    return ended(api, begin(api, **options))


def refused(api: Management, queue: str = "dlq", **options: Any) -> tuple[int, str]:
    return api.refusal("POST", "queues", "/", queue, "return-messages", body=options)


def reject(channel: Channel, queue: str, count: int) -> None:
    """Dead-letter the first messages of a queue."""
    for _ in range(count):
        got = channel.get(queue)
        assert got is not None
        channel.reject(got.delivery_tag, requeue=False)
    channel.sync()


def dead_letters(channel: Channel, count: int = 3, dlq: list[tuple[str, str, Any]] | None = None) -> None:
    """Queues a and b with dead letters in dlq: a0, b0, a1, b1, …"""
    channel.queue_declare("dlq", durable=True, arguments=dlq or [])
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True, arguments=DLX)
    for number in range(count):
        for name in ("a", "b"):
            headers = [("n", "I", number)]
            channel.publish("", name, f"{name}{number}".encode(), {"delivery_mode": 2, "headers": headers})
            channel.sync()
            reject(channel, name, 1)


def bodies(channel: Channel, queue: str) -> list[str]:
    found = []
    while (got := channel.get(queue)) is not None:
        found.append(got.body.decode())
    channel.recover(requeue=True)
    return found


def counts(job: dict[str, Any]) -> tuple[str, int, int]:
    return job["state"], job["returned"], job["left_count"]


@pytest.mark.parametrize(
    "dlq",
    [[], [("x-queue-mode", "S", "lazy")], [("x-queue-type", "S", "quorum")], [("x-max-priority", "I", 3)]],
    ids=["classic", "lazy", "quorum", "priority"],
)
def test_each_returns_to_its_queue(channel: Channel, api: Management, dlq: list[tuple[str, str, Any]]) -> None:
    dead_letters(channel, dlq=dlq)
    job = run(api)
    assert counts(job) == ("completed", 6, 0)
    assert job["by_origin"] == [
        {"target": "queue 'a'", "reason": "rejected", "count": 3},
        {"target": "queue 'b'", "reason": "rejected", "count": 3},
    ]
    # Their headers still name queue a.
    assert api.request("GET", "queues", "/", "a", "dead-letters")["dead_letters"] == 0
    assert (bodies(channel, "a"), bodies(channel, "b"), bodies(channel, "dlq")) == (
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
        [],
    )


def test_what_was_skipped_is_not_redelivered(channel: Channel, api: Management) -> None:
    dead_letters(channel)
    channel.publish("", "dlq", b"no dead letter", {})
    channel.sync()
    job = run(api, filter="header.n=1")
    assert counts(job) == ("completed", 2, 0)
    assert job["scanned"] == 7
    job = run(api, filter={"queue": "a"})
    assert counts(job) == ("completed", 2, 0)
    left = []
    while (got := channel.get("dlq", no_ack=True)) is not None:
        left.append((got.body.decode(), got.redelivered))
    assert left == [("b0", False), ("b2", False), ("no dead letter", False)]


def test_missing_and_full_targets_leave_messages_where_they_are(channel: Channel, api: Management) -> None:
    dead_letters(channel)
    channel.queue_delete("a")
    channel.queue_delete("b")
    channel.queue_declare("b", durable=True, arguments=[("x-max-length", "I", 2)])
    channel.publish("", "dlq", b"no dead letter", {})
    channel.sync()
    expected = [
        {"problem": "the queue does not exist", "target": "queue 'a'", "count": 3},
        {"problem": "the queue is full", "target": "queue 'b'", "count": 1},
        {"problem": "it is not a dead letter", "target": "", "count": 1},
    ]
    shown = begin(api, dry_run=True)
    assert (shown["returned"], shown["left_count"], shown["left"]) == (2, 5, expected)
    assert len(bodies(channel, "dlq")) == 7
    job = run(api)
    assert counts(job) == ("completed", 2, 5)
    assert job["left"] == expected
    assert bodies(channel, "b") == ["b0", "b1"]
    assert bodies(channel, "dlq") == ["a0", "a1", "a2", "b2", "no dead letter"]


def test_through_the_exchange_every_bound_queue_gets_it_again(channel: Channel, api: Management) -> None:
    channel.queue_declare("dlq", durable=True)
    channel.queue_declare("a", durable=True, arguments=DLX)
    channel.queue_declare("copy", durable=True)
    channel.exchange_declare("return.ex", "topic")
    channel.queue_bind("a", "return.ex", "k.#")
    channel.queue_bind("copy", "return.ex", "#")
    channel.publish("return.ex", "k.1", b"x", {})
    channel.sync()
    reject(channel, "a", 1)
    assert counts(run(api, via="exchange")) == ("completed", 1, 0)
    assert (bodies(channel, "a"), bodies(channel, "copy")) == (["x"], ["x", "x"])
    got = channel.get("a")
    assert got is not None
    assert (got.exchange, got.routing_key) == ("return.ex", "k.1")
    channel.reject(got.delivery_tag, requeue=False)
    channel.sync()
    channel.exchange_delete("return.ex")
    job = run(api, via="exchange")
    assert counts(job) == ("completed", 0, 1)
    assert job["left"][0]["problem"] == "the exchange does not exist, or has no queue for it"


def test_the_last_death_instead_of_the_first(channel: Channel, api: Management) -> None:
    channel.queue_declare("dlq", durable=True)
    channel.queue_declare("b", durable=True, arguments=DLX)
    to_b = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "b")]
    channel.queue_declare("a", durable=True, arguments=to_b)
    for body in (b"1", b"2"):
        channel.publish("", "a", body, {})
        channel.sync()
        reject(channel, "a", 1)
        reject(channel, "b", 1)
    assert counts(run(api, death="last", limit=1)) == ("completed", 1, 0)
    assert (bodies(channel, "b"), bodies(channel, "dlq")) == (["1"], ["2"])
    assert counts(run(api)) == ("completed", 1, 0)
    assert bodies(channel, "a") == ["2"]


def test_headers_may_change(channel: Channel, api: Management) -> None:
    dead_letters(channel, 1)
    run(api, filter="queue=a", remove_death=True, remove_headers=["n"], set_headers={"attempt": 2})
    got = channel.get("a")
    assert got is not None
    assert got.properties["headers"] == [("attempt", "l", 2)]
    run(api)
    got = channel.get("b")
    assert got is not None
    names = [name for name, _, _ in got.properties["headers"]]
    assert names[0] == "n"
    assert "x-death" in names


def test_a_publisher_forges_no_way_back(channel: Channel, api: Management) -> None:
    """The job of an operator would send the message to a queue that its publisher may not write to."""
    dead_letters(channel, 1)
    run(api, filter="queue=a")
    got = channel.get("a")
    assert got is not None
    channel.ack(got.delivery_tag)
    headers = [
        (name, kind, "b" if name == "x-first-death-queue" else value) for name, kind, value in got.properties["headers"]
    ]
    channel.publish("", "dlq", b"forged", {"headers": headers})
    channel.sync()
    job = run(api)
    assert (job["returned"], job["left"]) == (1, [{"problem": "it is not a dead letter", "target": "", "count": 1}])
    assert bodies(channel, "b") == ["b0"]


def test_what_dies_again_meanwhile_stays(process: LeveretProcess, channel: Channel, api: Management) -> None:
    """A consumer rejects everything at once: each message goes round once, not forever."""
    dead_letters(channel, 40)
    with Connection(process.url) as other:
        consumer = other.channel()
        consumer.consume("a", "c")
        job = begin(api, rate=200)
        for _ in range(40):
            delivered = consumer.next_delivery()
            consumer.reject(delivered.delivery_tag, requeue=False)
        consumer.sync()
        assert counts(ended(api, job)) == ("completed", 80, 0)
    assert bodies(channel, "dlq") == [f"a{number}" for number in range(40)]


def test_the_rate_and_cancelling(channel: Channel, api: Management) -> None:
    dead_letters(channel, 20)
    job = begin(api, rate=2)
    wait_until(lambda: api.request("GET", "jobs", "/", job["id"])["returned"] >= 2, "some are returned")
    api.request("DELETE", "jobs", "/", job["id"])
    found = api.request("GET", "jobs", "/", job["id"])
    assert found["state"] == "cancelled"
    assert 2 <= found["returned"] < 20
    assert len(bodies(channel, "dlq")) == 40 - found["returned"]
    api.request("DELETE", "jobs", "/", job["id"])
    assert job["id"] not in [each["id"] for each in api.request("GET", "jobs")]


def test_a_deleted_queue_ends_the_job(channel: Channel, api: Management) -> None:
    dead_letters(channel, 5)
    job = begin(api, rate=1)
    channel.queue_delete("dlq")
    channel.queue_declare("dlq", durable=True)
    found = ended(api, job)
    assert (found["state"], found["error"]) == ("failed", "queue 'dlq' was deleted")


def test_permissions(process: LeveretProcess, channel: Channel, api: Management) -> None:
    dead_letters(channel, 2)
    for name, write, read in (
        ("returner", "^(a|amq\\.default|ex)$", ".*"),
        ("reader", "^$", ".*"),
        ("writer", ".*", "^$"),
    ):
        api.request("PUT", "users", name, body={"password": "x", "tags": "management"})
        api.request("PUT", "permissions", "/", name, body={"configure": "", "write": write, "read": read})

    def of(name: str) -> Management:
        return Management(process.http_url.replace("guest:guest", f"{name}:x"))

    assert [refused(of(name))[0] for name in ("reader", "writer")] == [401, 401]
    job = ended(of("returner"), begin(of("returner"), filter="header.n=0"))
    shown = {name: of(name).request("GET", "jobs", "/", job["id"]) for name in ("returner", "reader", "writer")}
    assert shown["reader"] == shown["returner"]
    hidden: dict[str, Any] = {"options": {}, "left": [], "by_origin": [], "error": None}
    assert shown["writer"] == {**shown["returner"], **hidden}, "no permission to read"
    assert of("writer").request("GET", "jobs") == [{**each, **hidden} for each in of("returner").request("GET", "jobs")]
    job = ended(of("returner"), begin(of("returner")))
    assert (counts(job), job["user"]) == (("completed", 2, 0), "returner")
    reject(channel, "a", 2)
    # Through exchanges, the permission is that on each of them; these have been published to the default exchange.
    assert counts(ended(of("returner"), begin(of("returner"), via="exchange"))) == ("completed", 2, 0)
    reject(channel, "a", 2)
    assert counts(ended(of("reader"), begin(of("reader"), via="exchange"))) == ("completed", 0, 2)
    job = begin(api, rate=1)
    assert of("returner").refusal("DELETE", "jobs", "/", job["id"])[0] == 401
    api.request("DELETE", "jobs", "/", job["id"])
    dead_letters(channel, 3)
    job = begin(of("returner"), rate=1)
    api.request("DELETE", "permissions", "/", "returner")
    found = ended(api, job)
    assert (found["state"], "refused for user 'returner'" in found["error"]) == ("failed", True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"via": "post"}, "via must be queue or exchange, is post"),
        ({"death": 1}, "death must be first or last, is 1"),
        ({"rate": 5e-324}, "rate must be 0.001 to 1000000 messages per second, is 5e-324"),
        ({"rate": 0}, "rate must be 0.001 to 1000000 messages per second, is 0"),
        ({"limit": 0}, "limit must be 1 or more, is 0"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"filter": "colour=red"}, "filter takes "),
        ({"remove_headers": "x"}, "remove_headers must be a list of names"),
        ({"set_headers": {"x-first-death-queue": "a"}}, "set_headers cannot have x-first-death-queue, which only"),
        ({"set_headers": []}, "set_headers must be an object"),
        ({"remove_death": 1}, "remove_death must be true or false"),
    ],
)
def test_bad_options(channel: Channel, api: Management, options: dict[str, Any], reason: str) -> None:
    channel.queue_declare("dlq", durable=True)
    status, text = refused(api, **options)
    assert status == 400
    assert text.startswith(reason)


def test_leveretctl(process: LeveretProcess, channel: Channel) -> None:
    ctl = Leveretctl(process.http_url)
    dead_letters(channel)
    either = ("--filter", "header.n=0", "--filter", "queue=a", "--match", "any")
    ran = ctl("return_messages", "dlq", "--dry-run", "-q", *either)
    assert (ran.status, ran.out.splitlines()[0]) == (0, "Would return 4 messages, left 0")
    ran = ctl("return_messages", "dlq", "--dry-run", "-q", "--filter", "queue=a")
    assert ran.out == "Would return 3 messages, left 0\n  3 to queue 'a', rejected\n"
    ran = ctl("return_messages", "dlq", "-q", "--filter", "queue=a", "--set-header", "x=1", "--remove-header", "n")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("is completed. Returned 3 messages, left 0\n  3 to queue 'a', rejected\n")
    channel.queue_delete("b")
    ran = ctl("return_messages", "dlq", "-q")
    assert ran.status == 69
    assert ran.err.endswith(
        "Returned 0 messages, left 3\n  3 to queue 'b', rejected\n  3 left: the queue does not exist (queue 'b')\n"
    )
    shown = ctl.output("list_jobs", "-s", "queue", "state", "returned", "left").splitlines()
    assert shown[:2] == ["dlq\tcompleted\t0\t3", "dlq\tcompleted\t3\t0"]
    dead_letters(channel)
    ran = ctl("return_messages", "dlq", "-q", "--rate", "1", "--detach")
    job = ran.out.split()[1]
    ctl.output("cancel_job", job)
    assert f"{job}\tcancelled\n" in ctl.output("list_jobs", "-s", "id", "state")
    assert ctl("cancel_job", "none").err == "Error:\nno job 'none' in vhost '/'\n"
    assert ctl("return_messages", "nowhere").status == 69
    for option in (("--via", "post"), ("--death", "now"), ("--rate", "0"), ("--set-header", "x"), ("--match", "x")):
        assert ctl("return_messages", "dlq", *option).status == 65


def test_a_job_moves_messages(process: LeveretProcess, channel: Channel, api: Management) -> None:
    ctl = Leveretctl(process.http_url)
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True)
    for number in range(10):
        channel.publish("", "a", b"%d" % number, {"headers": [("n", "I", number)]})
    channel.sync()
    ran = ctl("move_messages", "a", "b", "--rate", "1000", "--filter", "body.$=7", "-q")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("is completed. Moved 1 messages, left 0\n")
    ran = ctl("move_messages", "a", "b", "--detach", "--limit", "2", "-q")
    job = ended(api, {"id": ran.out.split()[1]})
    assert (job["kind"], job["options"], counts(job)) == ("move", {"to": "b", "limit": 2}, ("completed", 2, 0))
    got = channel.get("a", no_ack=True)
    assert got is not None
    assert (got.body, got.redelivered) == (b"2", False)
    assert bodies(channel, "b") == ["7", "0", "1"]
    moved = channel.get("b")
    assert moved is not None
    assert (moved.routing_key, moved.properties["headers"]) == ("a", [("n", "I", 7)])
    assert ctl("move_messages", "a", "a", "--detach").status == 69
    assert ctl("move_messages", "a", "nowhere", "--detach").status == 69
    assert ctl("move_messages", "a", "b", "--rate", "0").status == 65


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Programs that the test starts react to Ctrl-C, even if the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_the_job_running(process: LeveretProcess, channel: Channel, api: Management) -> None:
    dead_letters(channel, 10)
    words = [sys.executable, "-m", "leveret.broker.leveretctl", "return_messages", "dlq", "--rate", "1", "-q"]
    environment = {**os.environ, "LEVERET_URL": process.http_url}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as program:
        wait_until(lambda: any(each["state"] == "running" for each in api.request("GET", "jobs")), "it has begun")
        (job,) = [each for each in api.request("GET", "jobs") if each["state"] == "running"]
        wait_until(lambda: api.request("GET", "jobs", "/", job["id"])["returned"] >= 3, "it returns some")
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    assert program.returncode == 130
    assert f"leveretctl cancel_job {job['id']}" in said
    assert api.request("GET", "jobs", "/", job["id"])["state"] == "running"
    api.request("DELETE", "jobs", "/", job["id"])


def test_the_documented_commands(process: LeveretProcess, channel: Channel) -> None:
    ctl = Leveretctl(process.http_url)
    dead_letters(channel, 2)
    first, second = block("sh", "return_messages").strip().splitlines()
    for command, words in ((first, "Would return 4 messages"), (second, "Returned 4 messages")):
        program, *arguments = shlex.split(command.replace("payments.dead", "dlq").replace("expired", "rejected"))
        assert program == "leveretctl"
        assert words in ctl.output(*arguments, "-q")


def test_a_job_goes_on_after_a_stop(tmp_path: Path) -> None:
    """tests/crash/test_interrupted_jobs.py has kills."""
    with LeveretProcess(tmp_path) as process:
        api = Management(process.http_url)
        with Connection(process.url) as opened:
            dead_letters(opened.channel(), 30)
        job = begin(api, rate=20)
        wait_until(lambda: api.request("GET", "jobs", "/", job["id"])["returned"] >= 10, "some are returned")
        process.stop()
        process.start()
        assert counts(ended(api, job)) == ("completed", 60, 0)
        with Connection(process.url) as opened:
            channel = opened.channel()
            assert bodies(channel, "dlq") == []
            for name in ("a", "b"):
                assert bodies(channel, name) == [f"{name}{number}" for number in range(30)]


def test_what_the_filter_cannot_check_is_left(channel: Channel, api: Management) -> None:
    channel.queue_declare("dlq", durable=True)
    channel.publish("", "dlq", b"[" + b" " * (1 << 20) + b"1]", {"delivery_mode": 2})
    channel.publish("", "dlq", b"[2]", {"delivery_mode": 2})
    channel.sync()
    problem = "the filter reads no body of more than 1048576 bytes"
    job = run(api, filter={"body": {"[0]": 1}})
    assert job["left"] == [{"problem": problem, "target": "", "count": 1}]
