"""The documented commands for containers, with the test's names, on the host's network."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pika
import pytest

from tests.docker.container import Container, free_ports
from tests.docker.daemon import Docker
from tests.support.documentation import block

_NAME = "leveret-of-the-documentation"


def commands() -> list[list[str]]:
    make, *lines = block("sh", "docker run --detach").splitlines()
    assert make == "make docker"
    return [shlex.split(line) for line in lines]


def substituted(words: list[str], image: str, ports: dict[str, int]) -> list[str]:
    """Words of a command: our names for its ones, and the host's network for published ports."""
    made: list[str] = []
    given = iter(words)
    for word in given:
        if word == "--publish":
            assert re.fullmatch(r"(\d+):\1", next(given))
        elif word in ("--name", "--volume"):
            made += [word, next(given).replace("leveret", _NAME, 1)]
        elif word == "--detach":
            variables = [each for name, port in ports.items() for each in ("--env", f"LEVERET_{name}={port}")]
            made += [word, "--network", "host", *variables]
        else:
            made.append(word)
    # The image is the last word of `run`, and the container the first one of the others.
    place = -1 if words[0] == "run" else 1
    assert made[place] == "leveret"
    made[place] = image if words[0] == "run" else _NAME
    return made


@pytest.fixture
def tidy(client: Docker) -> Iterator[None]:
    yield
    client("rm", "--force", _NAME)
    client("volume", "rm", "--force", _NAME)


@pytest.mark.usefixtures("tidy")
def test_container(client: Docker, image: str) -> None:
    ports = free_ports()
    run, *others = commands()
    assert run[:2] == ["docker", "run"]
    container = Container(client, client(*substituted(run[1:], image, ports)), ports)
    container.wait_until_ready()
    with container.connect("clerk", "change-me") as connection:
        connection.channel().basic_publish("", "nowhere", b"x", pika.BasicProperties(delivery_mode=2))
        connection.channel().queue_declare("orders", durable=True)
    outputs = [client(*substituted(words[1:], image, ports)) for words in others]
    assert "orders\t0" in outputs[0]
    assert [words[1] for words in others] == ["exec", "exec", "stop"]
    assert container.wait() == 0
