"""Identifiers lead back to the names that they stand for."""

from __future__ import annotations

import pytest

from leveret.broker.management.cli.identifiers import (
    channel_identifier,
    connection_identifier,
    connection_name,
    queue_identifier,
)


@pytest.mark.parametrize("name", ["127.0.0.1:39330 -> 127.0.0.1:5672", "[::1]:39330 -> [::1]:5672"])
def test_connection(name: str) -> None:
    identifier = connection_identifier(name)
    assert " " not in identifier
    assert connection_name(identifier) == name
    assert connection_name(name) == name
    assert channel_identifier(f"{name} (12)") == f"{identifier[:-1]}.12>"


def test_what_is_none() -> None:
    assert connection_name("nope") is None
    assert connection_name("") is None
    # One of RabbitMQ's is one of a connection that is not there.
    assert connection_name("<peer@localhost.1.2.0>") == "peer@localhost.1.2.0"


def test_queue() -> None:
    identifier = queue_identifier("n@h", "/", "q w\t")
    assert identifier.startswith("<n@h.")
    assert identifier == queue_identifier("n@h", "/", "q w\t")
    assert identifier != queue_identifier("n@h", "v", "q w\t")
    assert not set(identifier) & set(" \t\n")
