"""Definitions that cannot be written are not confirmed to clients; everything else continues."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from leveret import LeveretThread
from tests.conformance.http_api import HttpApi, path
from tests.conformance.topology import drain
from tests.integration.restarts import PERSISTENT, Restarts
from tests.integration.waiting import wait_until
from tests.support.events import ConnectionClosed
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import HEARTBEAT, Connection

_DEADLINE = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarts]:
    """A broker of the test's own, which is killed."""
    with LeveretProcess(tmp_path) as started:
        made = Restarts(started, killed=True)
        yield made
        made.disconnect()


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Lock the definitions, as another process might."""
    with closing(sqlite3.connect(data / "definitions.sqlite", isolation_level=None, timeout=_DEADLINE)) as database:
        database.execute("begin exclusive")
        yield
        database.execute("rollback")


class Asked:
    """A request in a thread of its own, and whether it has been answered."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.result: Any = None
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._ask()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.result = error

    @property
    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return self._thread.is_alive()

    def answer(self) -> Any:
        """The answer."""
        self._thread.join(_DEADLINE)
        assert not self.waits
        return self.result


def said(broker: Restarts, text: str) -> None:
    """Wait until the log says something."""
    wait_until(lambda: text in broker.process.log_text(), f"the log says {text!r}")


def test_answers_wait_and_all_else_goes_on(broker: Restarts) -> None:
    other, api = broker.channel(), HttpApi(broker.management)
    old = broker.queue(other)
    other.confirm_select()
    channels = [broker.channel() for _ in range(4)]
    channels[2].confirm_select()
    with locked(broker.process.data_dir):
        asked = [
            Asked(lambda: channels[0].queue_declare("q", durable=True)),
            Asked(lambda: channels[1].exchange_declare("x", durable=True)),
            Asked(lambda: api.ask("PUT", path("users", "u"), {"password": "u", "tags": ""}).status),
            Asked(lambda: api.ask("PUT", path("vhosts", "v"), {}).status),
            Asked(lambda: api.ask("PUT", path("queues", "/", "http"), {"durable": True}).status),
            Asked(
                lambda: (
                    api.ask(
                        "PUT", path("policies", "/", "p"), {"pattern": "none", "definition": {"max-length": 1}}
                    ).status
                )
            ),
            Asked(lambda: api.ask("PUT", path("global-parameters", "g"), {"value": 1}).status),
            Asked(lambda: api.ask("PUT", path("vhost-limits", "/", "max-queues"), {"value": 100}).status),
        ]
        said(broker, "cannot save definitions")
        # Others who are told of the new queue, or that their message is safe in it, wait as well.
        wait_until(lambda: any(each["name"] == "q" for each in api.get("queues")), "the queue is listed")
        asked.append(Asked(lambda: channels[2].queue_declare("q", passive=True)))
        asked.append(Asked(lambda: confirmed(broker, "q")))
        asked.append(Asked(lambda: channels[3].queue_declare("q", durable=True)))
        for number in range(20):
            other.publish("", old, b"%d" % number, properties=PERSISTENT)
        other.wait_for_confirms(20)
        assert len(drain(other, old)) == 20
        assert api.ask("GET", "overview").status == 200
        assert all(each.waits for each in asked), [each.result for each in asked]
    answers = [each.answer() for each in asked]
    assert answers[2:8] == [201, 201, 201, 201, 201, 204]
    assert not any(isinstance(each, Exception) for each in answers)
    said(broker, "definitions are saved again")
    broker()
    found = api.get("definitions")
    assert {"q", "http", old} <= {each["name"] for each in found["queues"]}
    assert "u" in {each["name"] for each in found["users"]}
    assert drain(broker.channel(), "q") == [b"safe"]


def confirmed(broker: Restarts, queue: str) -> None:
    """Publish a persistent message, and wait for its confirm."""
    channel = broker.channel()
    channel.confirm_select()
    channel.publish("", queue, b"safe", properties=PERSISTENT)
    channel.wait_for_confirms(1)


def test_held_answers_come_in_order(broker: Restarts) -> None:
    channel = broker.channel()
    with locked(broker.process.data_dir):
        declared = Asked(lambda: [channel.queue_declare(f"q{number}", durable=True).queue for number in range(1)])
        said(broker, "cannot save definitions")
        assert declared.waits
    assert declared.answer() == ["q0"]
    channel.queue_declare("q1", durable=True, nowait=True)
    channel.confirm_select()
    channel.publish("", "q1", b"1", properties=PERSISTENT)
    channel.wait_for_confirms(1)
    channel = broker()
    assert drain(channel, "q1") == [b"1"]


def test_nothing_acknowledged_is_missing_after_a_kill(broker: Restarts) -> None:
    """Neither what was there before, nor what a queue had that was to be deleted."""
    channel, dying = broker.channel(), broker.channel()
    dead = ("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "letters")
    first, gone = broker.queue(channel, *dead), broker.queue(channel)
    channel.confirm_select()
    for queue in (first, gone):
        channel.publish("", queue, b"old", properties=PERSISTENT)
    channel.wait_for_confirms(2)
    with locked(broker.process.data_dir):
        deleted = Asked(lambda: dying.queue_delete(gone))
        declared = Asked(lambda: broker.channel().queue_declare("letters", durable=True))
        said(broker, "cannot save definitions")
        wait_until(
            lambda: "letters" in {each["name"] for each in HttpApi(broker.management).get("queues")},
            "the queue is listed",
        )
        # The letter reaches a queue that will not be there after the kill.
        letter = channel.get(first)
        assert letter is not None
        channel.nack(letter.delivery_tag, requeue=False)
        channel.publish("", "letters", b"new", properties=PERSISTENT)
        stays = Asked(lambda: channel.wait_for_confirms(1))
        time.sleep(2.5)
        assert all(each.waits for each in (deleted, declared, stays)), (deleted.result, declared.result, stays.result)
        broker.process.kill()
    broker.disconnect()
    broker.process.start()
    channel = broker.channel()
    assert drain(channel, gone) == [b"old"]
    assert drain(channel, first) == [b"old"]


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[tuple[LeveretThread, Path]]:
    """A broker in this process that loses patience after a second."""
    with LeveretThread(tmp_path) as started:
        app = started._broker._app
        assert app is not None
        app.broker.gate.alarm_seconds = 1.0
        yield started, tmp_path


def test_new_definitions_are_refused_after_a_while(embedded: tuple[LeveretThread, Path]) -> None:
    """A connection with heartbeats survives that it is not answered."""
    started, data = embedded
    api = HttpApi(Management(started.http_url))
    with closing(Connection(started.url, timeout=_DEADLINE)) as free:
        free.channel().queue_declare("old", durable=True)
        with closing(Connection(started.url, heartbeat=1, timeout=_DEADLINE)) as held:
            with locked(data):
                channel = held.channel()
                channel.queue_declare("q", durable=True, nowait=True)
                wait_until(lambda: api.ask("GET", "health/checks/alarms").status == 503, "the alarm")
                for name in ("another", "q2"):
                    with (
                        closing(Connection(started.url, timeout=_DEADLINE)) as refused,
                        pytest.raises(ConnectionClosed, match=r"506.*cannot be written"),
                    ):
                        refused.channel().queue_declare(name, durable=True)
                assert api.ask("PUT", path("queues", "/", "third"), {"durable": True}).status == 503
                assert api.ask("PUT", path("users", "u"), {"password": "u", "tags": ""}).status == 503
                # What is there, and what is not durable, can be had.
                free.channel().queue_declare("old", durable=True)
                free.channel().queue_declare("transient", exclusive=True)
                before = held.heartbeats
                wait_until(lambda: heard(held) >= before + 4, "four more heartbeats")
            wait_until(lambda: api.ask("GET", "health/checks/alarms").status == 200, "the end of the alarm")
            channel.queue_declare("q", passive=True)
            free.channel().queue_declare("third", durable=True)


def heard(connection: Connection) -> int:
    """Heartbeats that have come; the client sends its own, too."""
    connection.wire.send_frame(HEARTBEAT, 0, b"")
    try:
        connection.read(0.2)
    except TimeoutError:
        pass
    return connection.heartbeats


def test_a_start_waits_for_its_definitions(tmp_path: Path) -> None:
    """And says in a line what keeps it from writing them."""
    with LeveretProcess(tmp_path) as started:
        assert started.stop() == 0
        with locked(started.data_dir), pytest.raises(RuntimeError, match=r"cannot use the data directory"):
            started.start()
        assert "Traceback" not in started.log_text()
        started.start()
    shutil.rmtree(started.data_dir)
