"""Shovels between two brokers that are killed, without their client library, and of the configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.certificates import Authority
from tests.integration.confirmed import publish_numbers
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Connection

SECRET = "guest:guest"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(make(tmp_path / "here")) as process:
        yield process


@pytest.fixture
def there(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(make(tmp_path / "there")) as process:
        yield process


def make(directory: Path) -> Path:
    directory.mkdir()
    return directory


def poll(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def set_shovel(broker: LeveretProcess, name: str = "x", **value: Any) -> None:
    given = {key.replace("_", "-"): each for key, each in value.items()}
    Management(broker.http_url).request("PUT", "parameters", "shovel", "/", name, body={"value": given})


def states(broker: LeveretProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Management(broker.http_url).request("GET", "shovels")
    return found


def fill(broker: LeveretProcess, queue: str, count: int) -> None:
    publish_numbers(broker.url, queue, range(count))


def count(broker: LeveretProcess, queue: str) -> int:
    with Connection(broker.url) as connection:
        return int(connection.channel().queue_declare(queue, durable=True).message_count)


def has(broker: LeveretProcess, queue: str, wanted: int) -> bool:
    return count(broker, queue) >= wanted


def bodies(broker: LeveretProcess, queue: str) -> list[int]:
    with Connection(broker.url) as connection:
        channel = connection.channel()
        found = channel.queue_declare(queue, passive=True).message_count
        channel.consume(queue, no_ack=True)
        return [int(each.body) for each in channel.deliveries(found, 60)]


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("killed", ["source", "destination"])
def test_nothing_is_lost_when_a_broker_is_killed(
    here: LeveretProcess, there: LeveretProcess, direction: str, killed: str
) -> None:
    total = 20_000
    source, destination = (here, there) if direction == "out" else (there, here)
    uris = {
        source: there.url if source is there else "amqp://",
        destination: there.url if destination is there else "amqp://",
    }
    fill(source, "a", total)
    with Connection(destination.url) as connection:
        connection.channel().queue_declare("b", durable=True)
    ends = {"src_uri": uris[source], "src_queue": "a", "dest_uri": uris[destination], "dest_queue": "b"}
    set_shovel(here, **ends, reconnect_delay=0.2)
    victim = source if killed == "source" else destination
    for part in (1, 2):
        wanted = part * total // 4
        poll(partial(has, destination, "b", wanted))
        victim.kill()
        victim.start()
    poll(lambda: count(source, "a") == 0)
    found = bodies(destination, "b")
    assert set(found) == set(range(total))
    # What was on its way comes twice: at most the prefetch count, for each kill.
    assert len(found) - total <= 2 * 1000
    first = [number for at, number in enumerate(found) if number not in found[max(0, at - 2500) : at]]
    assert first == sorted(first)


def test_a_static_shovel(tmp_path: Path, there: LeveretProcess) -> None:
    config = tmp_path / "leveret.yaml"
    value = {"src-uri": there.url, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    config.write_text(yaml.safe_dump({"shovels": {"fetch": value}}))
    fill(there, "a", 10)
    with LeveretProcess(make(tmp_path / "here"), config=config) as here:
        poll(lambda: count(here, "b") == 10)
        (shown,) = states(here)
        # Those of RabbitMQ 3.10.8, which shows the queue of a destination for dynamic ones only; and two of ours.
        assert shown.keys() - {"forwarded", "pending"} == {
            "node", "timestamp", "name", "type", "state", "src_uri", "src_protocol", "src_queue", "dest_uri",
            "dest_protocol", "dest_queue",
        }  # fmt: skip
        assert (shown["type"], shown["name"]) == ("static", "fetch")
        text = json.dumps(shown) + here.log_text()
        assert SECRET not in text


def test_a_static_shovel_that_is_wrong(tmp_path: Path) -> None:
    config = tmp_path / "leveret.yaml"
    config.write_text(yaml.safe_dump({"shovels": {"fetch": {"src-uri": "amqp://"}}}))
    with pytest.raises(RuntimeError, match="shovels: 'fetch': Must specify 'src-exchange' or 'src-queue'"):
        LeveretProcess(make(tmp_path / "here"), config=config)


def test_a_message_that_is_too_large(tmp_path: Path, here: LeveretProcess) -> None:
    with LeveretProcess(make(tmp_path / "small"), settings={"max_message_size": 1000}) as small:
        with Connection(here.url) as connection:
            channel = connection.channel()
            channel.queue_declare("a", durable=True)
            channel.publish("", "a", b"x" * 2000)
        set_shovel(here, src_uri="amqp://", src_queue="a", dest_uri=small.url, dest_queue="b", reconnect_delay=0.5)
        poll(lambda: states(here)[0]["state"] == "terminated")
        reason = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1000"
        assert states(here)[0]["reason"] == f'<<"{reason}">>'
        assert SECRET not in json.dumps(states(here)) + here.log_text()
        poll(lambda: Management(here.http_url).request("GET", "queues", "/", "a")["messages"] == 1)


def test_without_aiormq(tmp_path: Path, there: LeveretProcess) -> None:
    """A module of that name that cannot be imported stands for one that is not installed."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "aiormq.py").write_text("raise ImportError")
    with LeveretProcess(make(tmp_path / "here"), environment={"PYTHONPATH": str(hidden)}) as here:
        set_shovel(here, src_uri=there.url, src_queue="a", dest_uri="amqp://", dest_queue="b", reconnect_delay=0.2)
        poll(lambda: "reason" in states(here)[0])
        (shown,) = states(here)
        assert shown["state"] == "starting"
        assert "pip install 'leveret[shovel]'" in shown["reason"]
        fill(here, "c", 5)
        set_shovel(here, "local", src_uri="amqp://", src_queue="c", dest_uri="amqp://", dest_queue="d")
        poll(lambda: count(here, "d") == 5)


def test_it_goes_on_after_a_restart(here: LeveretProcess) -> None:
    set_shovel(here, src_uri="amqp://", src_queue="a", dest_uri="amqp://", dest_queue="b")
    poll(lambda: states(here)[0]["state"] == "running")
    here.stop()
    here.start()
    fill(here, "a", 100)
    poll(lambda: count(here, "b") == 100)
    Management(here.http_url).request("DELETE", "shovels", "vhost", "/", "x")
    here.stop()
    here.start()
    assert states(here) == []


def test_a_copy_of_a_stream_goes_on_where_it_was(here: LeveretProcess, there: LeveretProcess) -> None:
    """However often either side is killed, and whoever else publishes to the copy, each message comes once."""
    total = 20_000
    stream = [("x-queue-type", "S", "stream")]
    for broker in (here, there):
        with Connection(broker.url) as connection:
            connection.channel().queue_declare("log", durable=True, arguments=stream)
    with Connection(there.url) as connection:
        channel = connection.channel()
        for number in range(total):
            channel.publish("", "log", b"%d" % number)
        channel.sync()
    ends = {"src_uri": there.url, "src_queue": "log", "dest_uri": "amqp://", "dest_queue": "log"}
    set_shovel(here, **ends, src_consumer_args={"x-stream-offset": "continue"}, reconnect_delay=0.2)
    for victim in (here, there, here):
        poll(partial(has_more, here, min(stream_count(here), total - 1)))
        victim.kill()
        victim.start()
        with Connection(here.url) as connection:
            channel = connection.channel()
            channel.publish("", "log", b"-1")
            channel.sync()
    poll(lambda: stream_count(here) >= total + 3)
    with Connection(here.url) as connection:
        channel = connection.channel()
        channel.qos(total + 3)
        channel.consume("log", arguments=[("x-stream-offset", "S", "first")])
        found = [int(each.body) for each in channel.deliveries(total + 3, 60)]
    assert [number for number in found if number >= 0] == [*range(total)]


def has_more(broker: LeveretProcess, before: int) -> bool:
    return stream_count(broker) > before


def stream_count(broker: LeveretProcess) -> int:
    [found] = Management(broker.http_url).request("GET", "queues")
    return int(found.get("messages", 0))


def test_a_copy_that_goes_on_needs_a_stream_here(here: LeveretProcess) -> None:
    fill(here, "a", 1)
    ends = {"src_uri": "amqp://", "src_queue": "a", "dest_uri": "amqp://", "dest_queue": "b"}
    set_shovel(here, **ends, src_consumer_args={"x-stream-offset": "continue"})
    poll(lambda: "needs a stream of this broker" in states(here)[0].get("reason", ""))


def test_certificates_are_checked(tmp_path: Path, here: LeveretProcess) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    files = {"certfile": issued.certificate, "keyfile": issued.key}
    settings = {f"ssl_options.{name}": file for name, file in files.items()}
    with LeveretProcess(make(tmp_path / "there"), settings={"amqps_port": 0, **settings}) as there:
        assert there.amqps_url is not None
        port = there.amqps_url.rpartition(":")[2].partition("/")[0]
        uri = f"amqps://guest:guest@localhost:{port}"
        ends: dict[str, Any] = {"dest_uri": "amqp://", "dest_queue": "b", "src_queue": "a", "reconnect_delay": 0.2}
        set_shovel(here, src_uri=uri, **ends)
        poll(lambda: "reason" in states(here)[0])
        assert states(here)[0]["state"] == "starting"
        assert "certificate verify failed" in states(here)[0]["reason"]
        fill(there, "a", 1)
        for number, more in enumerate((f"cacertfile={authority.file}", "verify=verify_none"), 1):
            set_shovel(here, src_uri=f"{uri}?{more}", **ends)
            poll(partial(has, here, "b", number))
            fill(there, "a", 1)


@pytest.mark.parametrize("mode", ["on-confirm", "no-ack"])
def test_large_messages(here: LeveretProcess, there: LeveretProcess, mode: str) -> None:
    """They are not all read at once: what is on its way has a limit in bytes, too."""
    with Connection(there.url) as connection:
        channel = connection.channel()
        channel.queue_declare("a", durable=True)
        for number in range(60):
            channel.publish("", "a", b"%02d" % number * 500_000)
        channel.sync("a")
    set_shovel(here, src_uri=there.url, src_queue="a", dest_uri="amqp://", dest_queue="b", ack_mode=mode)
    poll(partial(has, here, "b", 60))
    with Connection(here.url) as connection:
        channel = connection.channel()
        channel.consume("b", no_ack=True)
        assert [each.body[:2] for each in channel.deliveries(60, 60)] == [b"%02d" % number for number in range(60)]


def test_connections_that_the_other_broker_closes(here: LeveretProcess, there: LeveretProcess) -> None:
    """What is confirmed here when the connection has just ended cannot be acknowledged; it comes again."""
    total = 20_000
    fill(there, "a", total)
    with Connection(here.url) as connection:
        connection.channel().queue_declare("b", durable=True)
    ends = {"src_uri": there.url, "src_queue": "a", "dest_uri": "amqp://", "dest_queue": "b"}
    for number in range(8):
        set_shovel(here, f"x{number}", **ends, src_prefetch_count=100, reconnect_delay=0.1)
    ctl = Leveretctl(there.http_url)
    closed, deadline = 0, time.monotonic() + 120
    while count(there, "a"):
        assert time.monotonic() < deadline
        closed += ctl("close_all_connections", "-p", "/", "gone").status == 0
    assert closed > 3
    poll(lambda: count(here, "b") >= total)
    poll(lambda: {each["state"] for each in states(here)} == {"running"})
    fill(there, "a", 1)
    poll(lambda: count(there, "a") == 0)
    assert "Traceback" not in here.log_text()
    assert set(bodies(here, "b")) == set(range(total))
