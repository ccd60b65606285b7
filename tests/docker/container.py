"""A container with a broker, on free ports of this machine."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingConnection

from tests.docker.daemon import Docker

_HEALTHY_SECONDS: Final = 60.0
_PORTS: Final = ("PORT", "MANAGEMENT_PORT", "PROMETHEUS_PORT")


class Container:
    """One that has been started, and is removed in the end."""

    def __init__(self, docker: Docker, identifier: str, ports: Mapping[str, int]) -> None:
        self.identifier = identifier
        self.port = ports["PORT"]
        self.management_port = ports["MANAGEMENT_PORT"]
        self._docker = docker

    def inspect(self) -> dict[str, Any]:
        """Return what Docker knows of it."""
        (document,) = json.loads(self._docker("inspect", self.identifier))
        assert isinstance(document, dict)
        return document

    def wait_until_healthy(self) -> None:
        """Wait for its health check to succeed."""
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while True:
            state = self.inspect()["State"]
            health = state["Health"]["Status"]
            if health == "healthy":
                return
            assert state["Running"], f"ended with status {state['ExitCode']}\n{self.log()}"
            assert health == "starting", f"{state['Health']}\n{self.log()}"
            assert time.monotonic() < deadline, f"not healthy within {_HEALTHY_SECONDS} s\n{state}\n{self.log()}"
            time.sleep(0.05)

    def wait_until_ready(self) -> None:
        """Wait for its port to be open."""
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.01)

    def execute(self, *command: str) -> str:
        """Run a program in it; return its output."""
        return self._docker("exec", self.identifier, *command)

    def kill(self) -> int:
        """End it with SIGKILL; return its exit status."""
        self._docker("kill", self.identifier)
        return self.wait()

    def stop(self) -> int:
        """End it as Docker does, with its stop signal; return its exit status."""
        self._docker("stop", "-t", "20", self.identifier)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return its exit status."""
        return int(self._docker("wait", self.identifier))

    def start_again(self) -> None:
        """Start it again after its end, with what it has on its volume."""
        self._docker("start", self.identifier)

    def log(self) -> str:
        """Return what the broker has written."""
        done = self._docker.run("logs", self.identifier)
        return done.stdout + done.stderr

    def connect(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> BlockingConnection:
        """Connect to it from outside."""
        credentials = pika.PlainCredentials(user, password)
        return BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, vhost, credentials))


@contextmanager
def started(
    docker: Docker,
    image: str,
    *arguments: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Container]:
    """Start a container, on the host's network and a volume of its own, and remove both in the end."""
    ports = free_ports()
    variables = {f"LEVERET_{name}": str(port) for name, port in ports.items()} | dict(environment or {})
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    # One health check a second, so that tests need not wait 10 s.
    words += ["--detach", "--network", "host", "--health-interval", "1s", *options]
    container = Container(docker, docker("run", *words, image, *arguments), ports)
    try:
        yield container
    finally:
        docker("rm", "--force", "--volumes", container.identifier)


def free_ports() -> dict[str, int]:
    """Return ports that nobody listens on, by the names of their options."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in _PORTS]
    ports = {name: each.getsockname()[1] for name, each in zip(_PORTS, sockets, strict=True)}
    for each in sockets:
        each.close()
    return ports
