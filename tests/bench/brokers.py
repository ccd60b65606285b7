"""The brokers to measure: a new Leveret for each run, and a peer to compare with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.bench.accounting import ProcessAccount, listening_pid
from tests.bench.in_flight import BenchError
from tests.bench.lavinmq import LAVINMQ_VARIABLE, running_lavinmq
from tests.bench.rabbitmq import find_installation, running_node
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection, parse_url

PEER_VARIABLE: Final = "BENCH_PEER"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        name: product and version from its server properties.
        url: AMQP URL.
        account: account of its process; None if it is remote or not accessible.
    """

    name: str
    url: str
    account: ProcessAccount | None


class Start(Protocol):
    """Makes a broker ready for one run."""

    def __call__(self) -> AbstractContextManager[Broker]:
        """Return a context manager; the broker runs at least inside its block."""


@contextmanager
def fresh_leveret() -> Iterator[Broker]:
    """Start a Leveret with an empty data directory, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-leveret-") as name, LeveretProcess(Path(name)) as process:
        yield Broker(_introduction(process.url), process.url, ProcessAccount(process.pid))


def given(url: str) -> Broker:
    """Describe a broker that is already running.

    Raises:
        OSError: connecting to it failed.
    """
    address = parse_url(url)
    pid = listening_pid(address.port) if address.host in _LOOPBACK else None
    return Broker(_introduction(url), url, None if pid is None else ProcessAccount(pid))


@contextmanager
def fresh_rabbitmq() -> Iterator[Broker]:
    """Start a RabbitMQ node, and stop it at the end.

    Raises:
        BenchError: it is not installed, or did not start.
    """
    installation = find_installation()
    if installation is None:
        raise BenchError("rabbitmq-server or epmd is not installed")
    with running_node(installation) as url:
        yield given(url)


@contextmanager
def peer(environment: Mapping[str, str]) -> Iterator[Start | None]:
    """Provide the broker to compare with: `BENCH_PEER`, else `LAVINMQ`, else a RabbitMQ of our own, else None.

    A node of our own lives as long as the block, as it takes seconds to start. Its peak of memory is counted afresh
    for every run.
    """
    if url := environment.get(PEER_VARIABLE):
        broker = given(url)
        yield lambda: nullcontext(broker)
    elif program := environment.get(LAVINMQ_VARIABLE):
        with running_lavinmq(program) as url:
            broker = given(url)
            yield lambda: nullcontext(broker)
    elif find_installation():
        with fresh_rabbitmq() as broker:
            yield lambda: nullcontext(broker)
    else:
        yield None


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
