"""URLs of the HTTP API."""

from __future__ import annotations

import pytest

from leveret.broker.management.cli.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", Address("http", "h", 15672, "", "guest", "guest")),
        ("h:1", Address("http", "h", 1, "", "guest", "guest")),
        ("https://h", Address("https", "h", 15671, "", "guest", "guest")),
        ("http://u:p@h:1/", Address("http", "h", 1, "", "u", "p")),
        ("http://u:@h:1", Address("http", "h", 1, "", "u", "")),
        ("http://u%40x:p%2F%3A@h", Address("http", "h", 15672, "", "u@x", "p/:")),
        ("http://h/prefix/", Address("http", "h", 15672, "/prefix", "guest", "guest")),
        ("http://h/prefix/api", Address("http", "h", 15672, "/prefix", "guest", "guest")),
        ("http://[::1]:5", Address("http", "::1", 5, "", "guest", "guest")),
    ],
)
def test_parse(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize("url", ["amqp://h", "http://", "http://h:port", "http://h:99999", "ftp://h", "http://[::1"])
def test_no_url(url: str) -> None:
    with pytest.raises(ValueError):
        parse_address(url)


def test_shown() -> None:
    assert str(parse_address("http://u:secret@h:1")) == "h:1"
    assert str(parse_address("http://[::1]:1")) == "[::1]:1"
