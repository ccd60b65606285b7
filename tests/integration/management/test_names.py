"""Names that are not UTF-8, as AMQP allows them: nothing that prints names fails, and each object can be named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import leveret
from tests.conformance.http_api import HttpApi
from tests.integration.management.scrapes import OPENMETRICS, scrape, value
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Connection

#: Surrogates, which are what Python escapes bytes with and what Erlang takes for characters.
NAME, OTHER = (octets.decode("utf-8", "surrogateescape") for octets in (b"\xed\xa0\x80", b"\xed\xa0\x81"))
QUOTED: Final = ("%ED%A0%80", "%ED%A0%81")
ESCAPED: Final = (r"\xed\xa0\x80", r"\xed\xa0\x81")
DETAILS: Final = "".join(
    f"&family={each}"
    for each in (
        *("queue_coarse_metrics", "queue_metrics", "queue_consumer_count", "channel_metrics", "connection_metrics"),
        *("exchange_metrics", "exchange_bindings", "exchange_names", "vhost_status", "queue_loss_metrics"),
    )
)
LISTS: Final = (
    *("queues", "exchanges", "bindings", "consumers", "connections", "definitions", "losses"),
    *(f"queues/%2F/{QUOTED[0]}", f"queues/%2F/{QUOTED[0]}/explain", f"queues/%2F/{QUOTED[0]}/browse"),
    *(f"exchanges/%2F/{QUOTED[0]}", "queues/%2F?page=1&sort=messages&name=s"),
)
EMPTY: Final = ("jobs", "channels", "readers", f"exchanges/%2F/{QUOTED[0]}/delayed", "overview", "nodes")
COMMANDS: Final = (
    *(("list_queues", "name", "arguments"), ("list_exchanges",), ("list_bindings",), ("list_consumers",)),
    *(("list_queues", "--formatter", each) for each in ("json", "csv", "erlang", "pretty_table")),
    ("export_definitions", "-"),
)


def _make(connection: Connection) -> None:
    """Make objects with such names; a message was lost, and one waits."""
    channel = connection.channel()
    for name in (NAME, OTHER):
        channel.queue_declare(name, durable=True, arguments=[("x-max-length", "I", 1)])
        delayed = [("x-delayed-type", "S", b"topic")]
        channel.exchange_declare(name, "x-delayed-message", durable=True, arguments=delayed)
        channel.queue_bind(name, name, name, arguments=[("a\udcff", "S", b"\xff")])
    channel.queue_declare(f"s{NAME}", durable=True, arguments=[("x-queue-type", "S", b"stream")])
    for queue in (NAME, NAME, f"s{NAME}"):
        channel.publish("", queue, b"m", {"headers": [("\udcff", "S", b"\xff")], "delivery_mode": 2})
    channel.consume(OTHER, consumer_tag=NAME)
    wait_until(lambda: channel.queue_declare(NAME, passive=True).message_count == 1, "the message")


def _check_metrics(process: LeveretProcess) -> None:
    for headers in ({}, {"Accept": OPENMETRICS}):
        for below, metric in (("per-object", "rabbitmq_"), (f"detailed?{DETAILS}", "rabbitmq_detailed_")):
            text = scrape(process, f"metrics/{below}", **headers)
            ready = [value(text, f"{metric}queue_messages_ready", queue=each, vhost="/") for each in ESCAPED]
            assert ready == [1, 0], "one series for each"


def _is_named(data_dir: Path, table: str) -> bool:
    rows = leveret.scan(data_dir, table).read_all().to_pylist()
    return any("\ufffd" in row["queue"] for row in rows)


def test_everything_that_prints_names(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        api, ctl = HttpApi(Management(process.http_url)), Leveretctl(process.http_url)
        with Connection(process.url, client_properties=[("k\udcff", "S", b"\xff")]) as connection:
            _make(connection)
            for below in LISTS:
                assert "\ufffd" in api.ask("GET", below).body.decode(), below
            for below in EMPTY:
                assert api.ask("GET", below).status == 200, below
            _check_metrics(process)
            for command in COMMANDS:
                assert "\ufffd" in ctl.output(*command), command
            for table in ("messages", "events", "queues", "segments"):
                wait_until(partial(_is_named, process.data_dir, table), f"names in {table}")
        exported = api.get("definitions")
        process.restart()
        api = HttpApi(Management(process.http_url))
        assert api.get("definitions") == exported
        api.check("POST", "definitions", exported, 204)
        for name in QUOTED:
            api.check("DELETE", f"queues/%2F/{name}", None, 204)
        assert "Traceback" not in process.log.read_text()
