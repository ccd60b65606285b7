"""`leveretctl migrate` between two brokers; RabbitMQ's HTTP API and AMQP are the same on the other side."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.leveretctl.api import Api
from leveret.broker.leveretctl.commands import migrate
from tests.conformance.topology import drain
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl, LeveretctlProgram
from tests.support.wire import Channel, Connection

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _counts_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leveret's counts are not up to five seconds old, as RabbitMQ's are."""
    monkeypatch.setattr(migrate, "_SETTLED", 0.5)
    monkeypatch.setattr(migrate, "_PAUSE", 0.1)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path) as process:
        yield process


@pytest.fixture
def there(other: LeveretProcess, vhost: str) -> Iterator[Channel]:
    """A channel to the virtual host at the other broker."""
    ctl = Leveretctl(other.http_url)
    ctl.output("add_vhost", vhost)
    ctl.output("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    with Connection(f"{other.url}/{vhost}") as connection:
        yield connection.channel()


@pytest.fixture
def run(ctl: Leveretctl, other: LeveretProcess, vhost: str) -> Any:
    def migrate_(*options: str) -> CommandResult:
        login = "amqp://guest:guest@" + other.url.rpartition("@")[2].removeprefix("amqp://")
        places = ("--from", login, "--from-http", other.http_url)
        return ctl("migrate", *places, "-p", vhost, "--formatter", "json", *options)

    return migrate_


def fill(channel: Channel, queue: str, count: int, first: int = 0, **properties: Any) -> None:
    for number in range(first, first + count):
        channel.publish("", queue, b"%d" % number, properties)
    channel.sync()


def test_it_brings_definitions_and_messages(
    run: Any, ctl: Leveretctl, there: Channel, vhost: str, channel: Channel
) -> None:
    there.exchange_declare("x", "topic", durable=True)
    there.queue_declare("plain", durable=True, arguments=[("x-max-length", "l", 1000)])
    there.queue_declare("ranked", durable=True, arguments=[("x-max-priority", "l", 3)])
    there.queue_declare("log", durable=True, arguments=[("x-queue-type", "S", "stream")])
    there.queue_declare("own", exclusive=True)
    there.queue_bind("plain", "x", "a.#")
    fill(there, "plain", 100, delivery_mode=2, headers=[("n", "l", 7)])
    fill(there, "ranked", 5, priority=1)
    fill(there, "ranked", 5, first=5, priority=3)
    fill(there, "log", 20)

    rows = json.loads(run("--dry-run").out)
    actions = {(row["kind"], row["name"]): row["action"] for row in rows}
    assert actions["queues", "plain"] == "declare"
    assert actions["messages", "plain"] == "move 100"
    assert actions["vhosts", vhost] == "is there"
    assert ("queues", "own") not in actions
    assert not ctl.output("list_queues", "-p", vhost, "-q", "--no-table-headers")

    ran = run("--cut-over")
    assert (ran.status, ran.err) == (0, "")
    found = {row["name"]: (row["left"], row["received"], row["result"]) for row in json.loads(ran.out)}
    assert found == {"plain": (0, 100, "moved"), "ranked": (0, 10, "moved"), "log": (0, 20, "moved")}
    assert ctl.output("list_bindings", "-p", vhost, "-s", "source_name", "destination_name", "routing_key") == (
        "\tlog\tlog\n\tplain\tplain\n\tranked\tranked\nx\tplain\ta.#\n"
    )
    assert not ctl.output("list_parameters", "-p", vhost, "-s").strip()
    first = channel.get("plain", no_ack=True)
    assert first is not None
    assert (first.body, first.properties["delivery_mode"], first.properties["headers"]) == (b"0", 2, [("n", "l", 7)])
    assert drain(channel, "plain") == [b"%d" % number for number in range(1, 100)]
    assert drain(channel, "ranked") == [b"%d" % number for number in (*range(5, 10), *range(5))]


def test_it_goes_on_where_it_was(run: Any, other: LeveretProcess, there: Channel, vhost: str, ctl: Leveretctl) -> None:
    """Producers stay at the old broker for a while; then they, and the consumers, go."""
    there.queue_declare("q", durable=True)
    there.queue_declare("log", durable=True, arguments=[("x-queue-type", "S", "stream")])
    fill(there, "q", 10)
    fill(there, "log", 10)
    assert json.loads(run().out) == {"result": "running", "queues": 2}
    fill(there, "q", 10, first=10)
    fill(there, "log", 10, first=10)
    # Its shovels are ended, as a kill of the other broker ends them.
    Leveretctl(other.http_url).output("close_all_connections", "-p", vhost, "gone")
    with Connection(f"{other.url}/{vhost}") as connection:
        consumer = connection.channel()
        consumer.consume("q")
        ended: list[CommandResult] = []
        waiting = threading.Thread(target=lambda: ended.append(run("--cut-over")))
        waiting.start()
        waiting.join(3)
        assert waiting.is_alive(), "somebody still consumes there"
    waiting.join(60)
    [ran] = ended
    assert ran.status == 0, ran
    found = {row["name"]: (row["received"], row["result"]) for row in json.loads(ran.out)}
    assert found == {"log": (20, "moved"), "q": (20, "moved")}
    assert not ctl.output("list_parameters", "-p", vhost, "-s").strip()


def test_another_run_removes_a_shovel_first(run: Any, there: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    there.queue_declare("q", durable=True)
    fill(there, "q", 3)
    delete = Api.delete

    def delete_twice(api: Api, *path: str, **more: Any) -> None:
        delete(api, *path, **more)
        delete(api, *path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Api, "delete", delete_twice)
        ended = run("--cut-over")
    assert (ended.status, json.loads(ended.out)[0]["result"]) == (0, "moved")


def test_two_at_once(
    ctl: Leveretctl, process: LeveretProcess, other: LeveretProcess, there: Channel, vhost: str
) -> None:
    """Both make the same shovels; who cuts over later finds that it is done."""
    there.queue_declare("q", durable=True)
    fill(there, "q", 500)
    login = "amqp://guest:guest@" + other.url.rpartition("@")[2].removeprefix("amqp://")
    options = ("--from", login, "--from-http", other.http_url, "-p", vhost, "--formatter", "json", "--cut-over")
    ended: list[CommandResult] = []
    program = LeveretctlProgram(process.http_url)
    running = [threading.Thread(target=lambda: ended.append(program("migrate", *options))) for _ in range(2)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(170)
    assert [(each.status, json.loads(each.out)[0]["result"]) for each in ended] == [(0, "moved"), (0, "moved")]
    assert not ctl.output("list_parameters", "-p", vhost, "-s").strip()


def test_back(run: Any, other: LeveretProcess, there: Channel, vhost: str, channel: Channel) -> None:
    there.queue_declare("q", durable=True)
    assert run("--cut-over").status == 0
    fill(channel, "q", 30)
    ran = run("--back", "--cut-over")
    assert (ran.status, json.loads(ran.out)) == (
        0,
        [{"name": "q", "type": "classic", "left": 0, "received": 30, "result": "moved"}],
    )
    assert drain(there, "q") == [b"%d" % number for number in range(30)]


def test_what_is_there_stays_and_what_is_refused_is_left_out(
    run: Any, there: Channel, vhost: str, channel: Channel
) -> None:
    there.queue_declare("q", durable=True, arguments=[("x-max-length", "l", 5)])
    there.exchange_declare("x", "direct")
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("x", "direct")
    actions = {(row["kind"], row["name"]): row["action"] for row in json.loads(run("--dry-run").out)}
    assert actions["queues", "q"] == "is there and differs; it stays as it is"
    assert actions["exchanges", "x"] == "is there"
    assert run("--cut-over").status == 0


def test_a_queue_that_cannot_be_declared_is_not_waited_for(
    run: Any, there: Channel, vhost: str, channel: Channel, ctl: Leveretctl
) -> None:
    there.queue_declare("q", durable=True)
    there.queue_declare("more", durable=True)
    fill(there, "q", 1)
    fill(there, "more", 1)
    channel.queue_declare("q", durable=True)
    ctl.output("set_vhost_limits", "-p", vhost, '{"max-queues": 1}')
    ran = run()
    assert (ran.status, "queue limit in vhost" in ran.err) == (69, True), ran


def test_a_transient_queue_that_is_gone_here_is_made_again_by_the_next_run(
    run: Any, there: Channel, channel: Channel
) -> None:
    there.queue_declare("q")
    assert run().status == 0
    channel.queue_delete("q")
    fill(there, "q", 3)
    assert run("--cut-over").status == 0
    assert drain(channel, "q") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ((), 64, "--from is missing"),
        (("--from", "http://h"), 64, "--from takes amqp://"),
        (("--from", "amqp://h/v"), 64, "without a virtual host"),
        (("--from", "amqp://h", "--queues", "("), 64, "not a valid regular expression"),
        (
            ("--from", "amqp://u:secret@127.0.0.1", "--from-http", "http://u:secret@127.0.0.1:1"),
            69,
            "cannot be reached",
        ),
    ],
)
def test_wrong_places(ctl: Leveretctl, options: tuple[str, ...], status: int, text: str) -> None:
    ran = ctl("migrate", *options)
    assert (ran.status, text in ran.err) == (status, True), ran
    assert "secret" not in ran.out + ran.err


def test_a_broker_that_does_not_answer(ctl: Leveretctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "PATIENCE", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ran = ctl("migrate", "--from", "amqp://u:secret@127.0.0.1", "--from-http", f"http://u:secret@{address}")
    assert (ran.status, f"{address} has not answered" in ran.err) == (69, True), ran
