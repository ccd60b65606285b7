"""The options of the sink."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leveret.analytics.errors import OptionError
from leveret.analytics.sink.sink_options import HttpApi, Server, is_for_sink, parse_sink_options


def test_defaults() -> None:
    found = parse_sink_options({"exchange": "x"})
    assert found.server == Server("127.0.0.1", 5672, "/", "guest", "guest")
    assert (found.exchange, found.routing_key, found.fails, found.failure_path) == ("x", None, True, None)
    assert (found.timeout, found.api) == (600, HttpApi("http://127.0.0.1:15672", "guest", "guest"))


@pytest.mark.parametrize(
    ("given", "server"),
    [
        ({"url": "amqp://u:p%40@h/v%2Fw"}, Server("h", 5672, "v/w", "u", "p@")),
        ({"url": "amqp://h:1"}, Server("h", 1, "/", "guest", "guest")),
        ({"url": "amqp://h/"}, Server("h", 5672, "/", "guest", "guest")),
        ({"url": "amqps://[::1]/x", "caFile": "ca"}, Server("::1", 5671, "x", "guest", "guest", True, "ca")),
        ({"url": "amqp://u:p@h", "user": "v", "password": "q"}, Server("h", 5672, "/", "v", "q")),
    ],
)
def test_servers(given: dict[str, str], server: Server) -> None:
    assert parse_sink_options({"exchange": "", **given}).server == server


def test_the_password_is_not_shown() -> None:
    options = parse_sink_options({"exchange": "", "url": "amqps://u:secret@h/a%2Fb"})
    assert repr(options.server) == "amqps://u@h:5671/a%2Fb"
    assert "secret" not in repr(options)


def test_the_http_api_is_looked_for_on_the_same_host() -> None:
    def api(**given: str) -> HttpApi:
        return parse_sink_options({"exchange": "", "url": "amqps://u:p@[::1]", **given}).api

    assert api() == HttpApi("https://[::1]:15671", "u", "p")
    assert api(managementUrl="http://m:1/mq/") == HttpApi("http://m:1/mq", "u", "p")
    other = api(managementUrl="http://a:b%40@m")
    assert other == HttpApi("http://m", "a", "b@")
    assert repr(other) == "http://m"


def test_a_path_for_failures_lets_the_query_go_on() -> None:
    found = parse_sink_options({"exchange": "", "failurePath": "failures"})
    assert (found.fails, found.failure_path) == (False, os.path.abspath("failures"))
    assert parse_sink_options({"exchange": "", "failurePath": "s3://b/f"}).failure_path == "s3://b/f"
    assert parse_sink_options({"exchange": "", "failurePath": "f", "onFailure": "FAIL"}).fails
    assert not parse_sink_options({"exchange": "", "onFailure": "count"}).fails


def test_headers_of_dead_letters_are_kept_on_request() -> None:
    assert not parse_sink_options({"exchange": ""}).keeps_deaths
    assert parse_sink_options({"exchange": "", "deathHeaders": "keep"}).keeps_deaths
    with pytest.raises(OptionError, match="option 'deathheaders' must be remove or keep, not 'drop'"):
        parse_sink_options({"exchange": "", "deathHeaders": "drop"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "name the exchange"),
        ({"exchange": "x", "path": "p"}, "to a broker, not to a path"),
        ({"exchange": "x", "colour": "red"}, "unknown option 'colour'; those of the sink are url,"),
        ({"exchange": "x" * 256}, "option 'exchange' has more than 255 bytes"),
        ({"exchange": "x", "routingKey": "ä" * 128}, "option 'routingkey' has more than 255 bytes"),
        ({"exchange": "x", "url": "http://h"}, "option 'url' must be like amqp://"),
        ({"exchange": "x", "url": "amqp://"}, "option 'url' must be like amqp://"),
        ({"exchange": "x", "url": "amqp://h:x"}, "option 'url' must be like amqp://"),
        ({"exchange": "x", "url": f"amqp://h/{'v' * 256}"}, "virtual host in option 'url' has more than 255"),
        ({"exchange": "x", "managementUrl": "m:15672"}, "option 'managementurl' must be like http://user"),
        ({"exchange": "x", "onFailure": "ask"}, "must be fail or count, not 'ask'"),
        ({"exchange": "x", "timeout": "soon"}, "must be a number of seconds, not 'soon'"),
        ({"exchange": "x", "timeout": "0"}, "must be a number of seconds, not '0'"),
        ({"exchange": "x", "timeout": "nan"}, "must be a number of seconds, not 'nan'"),
    ],
)
def test_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        parse_sink_options(given)


def test_what_spark_adds() -> None:
    assert parse_sink_options({"exchange": "x", "checkpointLocation": "/c"}).exchange == "x"
    assert is_for_sink({"checkpointLocation": "/c"})
    assert is_for_sink({"Exchange": "x"})
    assert is_for_sink({})
    assert not is_for_sink({"path": "p", "queue": "q"})
