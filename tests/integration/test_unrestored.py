"""A start skips definitions that it cannot restore, says so, and leaves them and their messages on disk."""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.conformance.topology import drain
from tests.integration.restarts import PERSISTENT, Restarts
from tests.support.events import ChannelClosed
from tests.support.leveret_process import LeveretProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarts]:
    """A broker of the test's own."""
    with LeveretProcess(tmp_path) as started:
        made = Restarts(started, killed=False)
        yield made
        made.disconnect()


def rows(data: Path, kind: str) -> dict[tuple[str, ...], str]:
    """What the database says of a kind."""
    with closing(sqlite3.connect(data / "definitions.sqlite")) as database:
        found = database.execute("select key, value from definitions where kind = ?", (kind,)).fetchall()
    return {tuple(json.loads(key)): value for key, value in found}


def rewrite(data: Path, kind: str, key: tuple[str, ...], new_key: tuple[str, ...], value: str) -> None:
    """Replace a row by another one, checksums included, as an earlier version might have written it."""
    with closing(sqlite3.connect(data / "definitions.sqlite")) as database, database:
        database.execute("delete from definitions where kind = ? and key = ?", (kind, json.dumps(key)))
        text = json.dumps(new_key)
        crc = crc32(f"{kind}\0{text}\0{value}".encode("utf-8", "surrogatepass"))
        database.execute("insert into definitions values (?, ?, ?, ?)", (kind, text, value, crc))
        database.execute("update summary set (rows, sum) = (select count(*), sum(crc) from definitions)")


def changed(value: str, **members: Any) -> str:
    """A row's value with other members."""
    return json.dumps({**json.loads(value), **members})


def files(data: Path) -> dict[str, bytes]:
    """The segments of all queues."""
    return {str(each.relative_to(data)): each.read_bytes() for each in (data / "q").rglob("*.seg")}


def arguments(depth: int) -> str:
    """Stored arguments with this many levels of nested tables."""
    octets = b""
    for _ in range(depth):
        octets = b"\x01kF" + struct.pack(">I", len(octets)) + octets
    return base64.b64encode(octets).decode()


REFUSED = base64.b64encode(b"\x0cx-max-lengthl" + struct.pack(">q", -5)).decode()
BAD: dict[str, Callable[[str], str]] = {
    "arguments that are not a table": lambda value: changed(value, arguments="AWtG"),
    "arguments that are not encoded": lambda value: changed(value, arguments="?"),
    "arguments nested deeper than ever": lambda value: changed(value, arguments=arguments(5000)),
    "arguments that are refused": lambda value: changed(value, arguments=REFUSED),
    "members are missing": lambda value: json.dumps({"qid": json.loads(value)["qid"]}),
    "no JSON": lambda value: value[:-1],
    "no object": lambda value: "[]",
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_queue(broker: Restarts, what: str) -> None:
    channel, data = broker.channel(), broker.process.data_dir
    for name in ("bad", "good"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.direct", "k")
    channel.confirm_select()
    for body in (b"1", b"2"):
        channel.publish("amq.direct", "k", body, properties=PERSISTENT)
    channel.wait_for_confirms(2)
    broker.end()
    before = files(data)
    row = BAD[what](rows(data, "queue")["/", "bad"])
    rewrite(data, "queue", ("/", "bad"), ("/", "bad"), row)
    for _ in range(2):
        broker.process.start()
        broker.end()
        assert rows(data, "queue")["/", "bad"] == row
        assert len(rows(data, "binding")) == 2
        assert {name: octets for name, octets in files(data).items() if name in before} == before
    # Once a start, and a start whose port somebody else has is repeated.
    line, *_ = (each for each in broker.process.log_text().splitlines() if "queue 'bad' in vhost '/' could" in each)
    assert "Traceback" not in broker.process.log_text()
    assert "it stays on disk" in line
    broker.process.start()
    channel = broker.channel()
    assert drain(channel, "good") == [b"1", b"2"]
    with pytest.raises(ChannelClosed, match=r"404.*could not be restored.*delete it"):
        channel.queue_declare("bad", durable=True)
    api = HttpApi(broker.management)
    assert api.ask("PUT", path("queues", "/", "bad"), {"durable": True}).status == 404
    assert [each["name"] for each in api.get("queues")] == ["good"]
    if what in ("no JSON", "no object"):
        api.check("DELETE", path("queues", "/", "bad"), None, 204)
    else:
        broker.channel().queue_delete("bad")
    channel = broker.channel()
    channel.queue_declare("bad", durable=True)
    assert drain(channel, "bad") == []
    channel = broker()
    assert drain(channel, "bad") == []
    bindings = api.get(path("bindings", "/"))
    assert sorted(each["destination"] for each in bindings if each["source"]) == ["good"]


def test_a_delayed_exchange(broker: Restarts) -> None:
    """Its messages stay on disk, until it can be restored again or is deleted."""
    channel, data, key = broker.channel(), broker.process.data_dir, ("/", "late")
    inner = [("x-delayed-type", "S", "fanout")]
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=inner)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "late")
    channel.confirm_select()
    channel.publish("late", "", b"1", {"headers": [("x-delay", "I", 1000)], **PERSISTENT})
    assert channel.wait_for_confirms(1) == [True]
    broker.end()
    before, row = files(data), rows(data, "exchange")[key]
    assert before
    rewrite(data, "exchange", key, key, changed(row, type="x-none"))
    broker.process.start()
    with pytest.raises(ChannelClosed, match=r"404.*could not be restored.*delete it"):
        broker.channel().exchange_declare("late", "x-delayed-message", durable=True, arguments=inner)
    broker.end()
    assert {name: octets for name, octets in files(data).items() if name in before} == before
    rewrite(data, "exchange", key, key, row)
    broker.process.start()
    channel = broker.channel()
    # The binding was kept too.
    channel.consume("q", no_ack=True)
    assert channel.next_delivery().body == b"1"
    channel.publish("late", "", b"2", {"headers": [("x-delay", "I", 3_600_000)], **PERSISTENT})
    channel.sync()
    broker.end()
    rewrite(data, "exchange", key, key, changed(row, type="x-none"))
    broker.process.start()
    broker.channel().exchange_delete("late")
    channel = broker()
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=inner)
    found = HttpApi(broker.management).get(f"{path('exchanges', '/', 'late')}?columns=messages_delayed")
    assert found == {"messages_delayed": 0}


def test_all_other_kinds(broker: Restarts) -> None:
    channel, data = broker.channel(), broker.process.data_dir
    api = HttpApi(broker.management)
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("x", durable=True)
    channel.queue_bind("q", "x", "k")
    channel.queue_bind("q", "amq.headers", "h")
    for kind in ("policies", "operator-policies"):
        api.check("PUT", path(kind, "/", "p"), {"pattern": "q", "definition": {"max-length": 5}}, 201)
    api.check("PUT", path("vhosts", "v"), {}, 201)
    api.check("PUT", path("queues", "v", "inside"), {"durable": True}, 201)
    api.check("PUT", path("users", "u"), {"password": "u", "tags": ""}, 201)
    api.check("PUT", path("permissions", "/", "u"), {"configure": "", "write": "", "read": ""}, 201)
    broker.end()
    rewrite(data, "exchange", ("/", "x"), ("/", "x"), changed(rows(data, "exchange")["/", "x"], type="x-none"))
    bound = ("/", "amq.headers", "queue", "q", "h", "")
    rewrite(data, "binding", bound, (*bound[:5], "AWtG"), "{}")
    for kind in ("policy", "operator_policy"):
        rewrite(data, kind, ("/", "p"), ("/", "p"), changed(rows(data, kind)["/", "p"], definition={"none": 1}))
    rewrite(data, "vhost", ("v",), ("v",), "{}")
    accounts = json.loads(rows(data, "accounts")[()])
    (granted,) = (each for each in accounts["permissions"] if each["user"] == "u")
    granted["write"] = "("
    rewrite(data, "accounts", (), (), json.dumps(accounts))
    rewrite(data, "binding", ("none",), ("gone", "amq.direct", "exchange", "amq.fanout", "k", ""), "{}")
    kinds = ("exchange", "binding", "policy", "operator_policy", "vhost")
    before = {kind: rows(data, kind) for kind in kinds}
    broker.process.start()
    for _ in range(2):
        channel = broker()
        assert {kind: rows(data, kind) for kind in kinds} == before
        assert len(api.get("queues")) == 2
        assert api.get(path("users", "u"))["name"] == "u"
    log = broker.process.log_text()
    assert "Traceback" not in log
    for text in (
        "exchange 'x' in vhost '/' could not be restored: ",
        "binding from 'amq.headers' to queue 'q' by 'h' in vhost '/' could not be restored: ",
        "binding from 'amq.direct' to exchange 'amq.fanout' by 'k' in vhost 'gone' could not be restored: there is no",
        "binding from 'x' to queue 'q' by 'k' in vhost '/' could not be restored: no exchange 'x'",
        "policy 'p' in vhost '/' could not be restored: ",
        "operator policy 'p' in vhost '/' could not be restored: ",
        "vhost 'v' could not be restored: ",
        "could not be restored: permissions: user 'u' in vhost '/': ",
    ):
        assert log.count(text) >= 2, text
    # Changing other users keeps the entry.
    api.check("PUT", path("users", "w"), {"password": "w", "tags": ""}, 201)
    assert granted in json.loads(rows(data, "accounts")[()])["permissions"]
    with pytest.raises(ChannelClosed, match=r"404.*exchange 'x'.*could not be restored"):
        channel.exchange_declare("x", durable=True)
    broker.channel().exchange_delete("x")
    for kind in ("policies", "operator-policies"):
        api.check("DELETE", path(kind, "/", "p"), None, 204)
    api.check("DELETE", path("queues", "/", "q"), None, 204)
    api.check("PUT", path("vhosts", "gone"), {}, 201)
    api.check("DELETE", path("vhosts", "v"), None, 204)
    assert {kind: rows(data, kind) for kind in kinds if kind != "vhost"} == {
        "exchange": {}, "binding": {}, "policy": {}, "operator_policy": {}
    }  # fmt: skip


@pytest.mark.parametrize("depth", [129, 330, 500])
def test_deep_arguments_of_earlier_versions_are_read(broker: Restarts, depth: int) -> None:
    channel, data = broker.channel(), broker.process.data_dir
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("x", durable=True)
    channel.queue_bind("q", "x", "k")
    channel.publish("x", "k", b"1", properties=PERSISTENT)
    broker.end()
    deep = arguments(depth)
    for kind, name in (("queue", "q"), ("exchange", "x")):
        rewrite(data, kind, ("/", name), ("/", name), changed(rows(data, kind)["/", name], arguments=deep))
    key = ("/", "x", "queue", "q", "k", "")
    rewrite(data, "binding", key, (*key[:5], deep), "{}")
    broker.process.start()
    api = HttpApi(broker.management)
    for _ in range(2):
        for kind in ("queues", "exchanges", "bindings", "definitions", path("queues", "/", "q")):
            assert api.ask("GET", kind).status == 200
        channel = broker()
        assert "could not be restored" not in broker.process.log_text()
    channel.publish("x", "k", b"2", properties=PERSISTENT)
    assert drain(channel, "q") == [b"1", b"2"]
    (bound,) = api.get(path("bindings", "/", "e", "x", "q", "q"))
    api.check("DELETE", path("bindings", "/", "e", "x", "q", "q", bound["properties_key"]), None, 204)
    assert rows(data, "binding") == {}
