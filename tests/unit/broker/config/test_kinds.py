from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.broker.config import kinds
from leveret.broker.config.kinds import Endpoint, Kind, ProductVersion, SyncRule

PORT = kinds.integer(0, 65535)
NUMBERED = kinds.optional(kinds.integer(1, 9), "none", "infinity")
TIMEOUT = kinds.optional(kinds.duration(1, 9999, "ms"), "false", "0")
MECHANISMS = kinds.names("PLAIN", "AMQPLAIN", empty=False)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (kinds.text(), "5672", "5672"),
        (kinds.text(empty=True), "", ""),
        (kinds.url_path(), "", ""),
        (kinds.url_path(), "/a-b/c.d_e~1/", "/a-b/c.d_e~1/"),
        (kinds.choice("debug", "info"), "INFO", "info"),
        (kinds.boolean(), True, True),
        (kinds.boolean(), "Off", False),
        (PORT, 0, 0),
        (PORT, "65535", 65535),
        (kinds.size(0, 9999), "4KiB", 4096),
        (kinds.size(0, 9999), 7, 7),
        (kinds.duration(0, 9999, "ms"), "2s", 2000),
        (kinds.real(0, 1), "0.4", 0.4),
        (kinds.real(0, 1), 1, 1.0),
        (NUMBERED, 5, 5),
        (NUMBERED, None, None),
        (NUMBERED, "infinity", None),
        (TIMEOUT, False, None),
        (TIMEOUT, 0, None),
        (TIMEOUT, "false", None),
        (TIMEOUT, "1s", 1000),
        (kinds.names(), ["a", "b", "a"], ("a", "b")),
        (kinds.names(), "a, b", ("a", "b")),
        (kinds.names(), "[a, b]", ("a", "b")),
        (kinds.names(), "none", ()),
        (kinds.names(), [], ()),
        (MECHANISMS, ["PLAIN"], ("PLAIN",)),
        (kinds.path(), "/tmp/x", Path("/tmp/x")),
        (kinds.document(), {"a": 1}, {"a": 1}),
        (kinds.document(), '{"a": [1]}', {"a": [1]}),
        (kinds.documents(), [{"a": 1}], ({"a": 1},)),
        (kinds.documents(), "[]", ()),
        (kinds.sync_rule(), "Always", SyncRule("always")),
        (kinds.sync_rule(), False, SyncRule("off")),
        (kinds.sync_rule(), "off", SyncRule("off")),
        (kinds.sync_rule(), "interval(200)", SyncRule("interval", 200)),
        (kinds.sync_rule(), "interval( 1s )", SyncRule("interval", 1000)),
        (kinds.product(), "RabbitMQ 3.10.8", ProductVersion("RabbitMQ", "3.10.8")),
        (kinds.product(), "Some Broker  4.0-rc.1", ProductVersion("Some Broker", "4.0-rc.1")),
    ],
)
def test_allowed_values(kind: Kind[Any], given: object, value: object) -> None:
    read = kind.read(given)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (kinds.text(), ""),
        (kinds.url_path(), "/a b"),
        (kinds.url_path(), "/a?b"),
        (kinds.url_path(), "/%41"),
        (kinds.url_path(), "/ü"),
        (kinds.url_path(), "/{a}"),
        (kinds.url_path(), "/../a"),
        (kinds.url_path(), None),
        (kinds.text(), 5672),
        (kinds.text(), None),
        (kinds.choice("debug", "info"), "loud"),
        (kinds.choice("debug", "info"), 1),
        (kinds.boolean(), 1),
        (kinds.boolean(), "maybe"),
        (PORT, -1),
        (PORT, 65536),
        (PORT, "65536"),
        (PORT, True),
        (PORT, 1.0),
        (PORT, "1.0"),
        (PORT, ""),
        (PORT, "9" * 5000),
        (PORT, None),
        (PORT, [1]),
        (kinds.size(4096, 9999), "4kB"),
        (kinds.size(0, 9999), "1M"),
        (kinds.duration(0, 9, "s"), "10s"),
        (kinds.real(0, 1), "nan"),
        (kinds.real(0, 1), 1.1),
        (kinds.real(0, 1), True),
        (kinds.real(0, 1), "x"),
        (NUMBERED, 0),
        (NUMBERED, "0"),
        (TIMEOUT, True),
        (kinds.names(), ["a", 1]),
        (kinds.names(), "a,,b"),
        (kinds.names(), "[a"),
        (kinds.names(), {"a": 1}),
        (kinds.names(), None),
        (MECHANISMS, []),
        (MECHANISMS, "none"),
        (MECHANISMS, ["EXTERNAL"]),
        (kinds.path(), ""),
        (kinds.path(), "a\0b"),
        (kinds.path(), "~nobody-of-that-name/x"),
        (kinds.document(), [1]),
        (kinds.document(), {1: 2}),
        (kinds.document(), "{"),
        (kinds.documents(), {"a": 1}),
        (kinds.documents(), [1]),
        (kinds.sync_rule(), True),
        (kinds.sync_rule(), 200),
        (kinds.sync_rule(), "interval"),
        (kinds.sync_rule(), "interval(0)"),
        (kinds.sync_rule(), "interval(2h)"),
        (kinds.product(), "RabbitMQ"),
        (kinds.product(), "3.10.8"),
        (kinds.product(), 3.10),
    ],
)
def test_values_that_are_not_allowed(kind: Kind[Any], given: object) -> None:
    with pytest.raises(ValueError):
        kind.read(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("none", ()),
        ([], ()),
        (5672, (Endpoint("", 5672),)),
        ("5672", (Endpoint("", 5672),)),
        ("127.0.0.1:5672, [::1]:5673", (Endpoint("127.0.0.1", 5672), Endpoint("::1", 5673))),
        ("[::1]:5672", (Endpoint("::1", 5672),)),
        ("::1:5672", (Endpoint("::1", 5672),)),
        ("[5672, 'localhost:1']", (Endpoint("", 5672), Endpoint("localhost", 1))),
        (["fe80::1%eth0:5672"], (Endpoint("fe80::1%eth0", 5672),)),
        ({1: "127.0.0.1:5672", "default": 5673}, (Endpoint("127.0.0.1", 5672), Endpoint("", 5673))),
        ([1, 1], (Endpoint("", 1),)),
    ],
)
def test_endpoints(given: object, expected: object) -> None:
    read = kinds.endpoints().read
    assert read(given) == expected
    if expected is not None and isinstance(expected, tuple):
        assert read([str(each) for each in expected]) == expected, "what is shown can be given again"


@pytest.mark.parametrize("given", [True, 70000, -1, "a", ":5672", "[::1]", "[::1:5672", "a b:1", [None], [[1]], 1.5])
def test_no_endpoints(given: object) -> None:
    with pytest.raises(ValueError):
        kinds.endpoints().read(given)
