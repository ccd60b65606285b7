"""The brokers to measure: a new Leveret for each run, and peers to compare with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.bench.accounting import ProcessAccount, listening_pid
from tests.bench.in_flight import BenchError
from tests.bench.peers import LAVINMQ_VARIABLE, find_installation, running_lavinmq, running_node
from tests.integration.certificates import Authority
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection, parse_url

#: AMQP URL of a running broker to compare with, and that of its encrypted listener.
PEER_VARIABLE: Final = "BENCH_PEER"
PEER_TLS_VARIABLE: Final = "BENCH_PEER_TLS"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    name: str
    url: str
    account: ProcessAccount | None
    tls_url: str | None = None
    http_url: str | None = None


class Start(Protocol):
    """Makes a broker ready for one run."""

    def __call__(self, *, tls: bool) -> AbstractContextManager[Broker]:
        """Return a context manager; the broker runs at least inside its block."""


@contextmanager
def fresh_leveret(*, tls: bool = False) -> Iterator[Broker]:
    """Start a Leveret with an empty data directory, and stop it at the end; see Start."""
    with tempfile.TemporaryDirectory(prefix="bench-leveret-") as name:
        directory = Path(name)
        settings, arguments = (_encrypted(directory), ("--amqps-port", "0")) if tls else ({}, ())
        with LeveretProcess(directory, settings=settings, arguments=arguments) as process:
            name, account = _introduction(process.url), ProcessAccount(process.pid)
            yield Broker(name, process.url, account, process.amqps_url, process.http_url)


def _encrypted(directory: Path) -> dict[str, object]:
    """Make a certificate for a Leveret; return the settings that name it."""
    issued = Authority(directory).issue("127.0.0.1")
    return {"ssl_options.certfile": issued.certificate, "ssl_options.keyfile": issued.key}


def given(url: str, tls_url: str | None = None) -> Broker:
    """Describe a broker that is already running."""
    address = parse_url(url)
    pid = listening_pid(address.port) if address.host in _LOOPBACK else None
    return Broker(_introduction(url), url, None if pid is None else ProcessAccount(pid), tls_url)


@contextmanager
def fresh_rabbitmq() -> Iterator[Broker]:
    """Start a RabbitMQ node, and stop it at the end."""
    installation = find_installation()
    if installation is None:
        raise BenchError("rabbitmq-server or epmd is not installed")
    with running_node(installation) as urls:
        yield given(*urls)


@contextmanager
def peers(environment: Mapping[str, str]) -> Iterator[list[Start]]:
    """Provide the brokers to compare with: `BENCH_PEER` and `LAVINMQ`, or without both a RabbitMQ if it is installed.

    A node of our own lives as long as the block, as it takes seconds to start. Its peak of memory is counted afresh
    for every run.
    """
    with ExitStack() as stack:
        found: list[Broker] = []
        if url := environment.get(PEER_VARIABLE):
            found.append(given(url, environment.get(PEER_TLS_VARIABLE)))
        if program := environment.get(LAVINMQ_VARIABLE):
            found.append(given(*stack.enter_context(running_lavinmq(program))))
        if not found and find_installation():
            found.append(stack.enter_context(fresh_rabbitmq()))
        yield [_always(broker) for broker in found]


def _always(broker: Broker) -> Start:
    """Return a Start of a broker that runs already."""

    def start(*, tls: bool) -> AbstractContextManager[Broker]:
        return nullcontext(broker)

    return start


def _introduction(url: str) -> str:
    with Connection(url) as connection:
        properties = {name: value for name, _, value in connection.start.server_properties}
    words = _text(properties.get("platform", b"")).split()
    if words[:1] == ["Leveret"]:
        # It names RabbitMQ as its product, since clients switch on that.
        return " ".join(words[:2])
    return " ".join(_text(properties.get(name, b"?")) for name in ("product", "version"))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
