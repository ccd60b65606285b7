"""The broker that the real clients talk to: a given one, or a Leveret of each test process."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import aio_pika
import pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractConnection

from tests.conformance.http_api import Belongings, HttpApi
from tests.integration.fixtures import Names
from tests.support.leveret_process import LeveretProcess, leveret_process
from tests.support.management import Management
from tests.support.wire import Connection

__all__ = ["leveret_process"]


class Broker(Protocol):
    """A broker under test."""

    @property
    def url(self) -> str:
        """AMQP URL of the default user and vhost."""


class GivenBroker:
    """A broker that somebody else runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """AMQP URL as given."""
        return self._url


def _given_url(config: pytest.Config) -> str | None:
    url: str | None = config.getoption("--broker-url", default=None)
    return url or os.environ.get("BROKER_URL")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that restart the broker when it is not ours."""
    if not _given_url(config):
        return
    restarting = [item for item in items if "restartable_broker" in getattr(item, "fixturenames", ())]
    if restarting:
        config.hook.pytest_deselected(items=restarting)
        items[:] = [item for item in items if item not in restarting]


@pytest.fixture(scope="session")
def given_url(pytestconfig: pytest.Config) -> str | None:
    """URL of the broker that the tests shall use (`BROKER_URL`), or None: they start a Leveret."""
    return _given_url(pytestconfig)


@pytest.fixture(scope="session")
def broker(given_url: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test."""
    if given_url:
        yield GivenBroker(given_url)
        return
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as process:
        yield process


@pytest.fixture
def restartable_broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    """A Leveret of the test's own, with `restart()`; tests that use it are left out with `BROKER_URL`."""
    with LeveretProcess(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker for the tests of one file."""
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as started:
        yield started


@pytest.fixture
def api(process: LeveretProcess) -> HttpApi:
    """The HTTP API of `process`."""
    return HttpApi(Management(process.http_url))


@pytest.fixture
def belongings(api: HttpApi) -> Iterator[Belongings]:
    """Makes users and virtual hosts there, which are gone after the test."""
    with Belongings(api) as made:
        yield made


@pytest.fixture
def url(broker: Broker) -> str:
    """AMQP URL of the broker under test."""
    return broker.url


@pytest.fixture
def name(broker: Broker) -> Iterator[Names]:
    """A function that gives new names; queues and exchanges of these names are deleted after the test."""
    given: list[str] = []

    def new(hint: str) -> str:
        given.append(f"integration.{hint}.{uuid.uuid4().hex[:12]}")
        return given[-1]

    yield new
    if given:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            for each in given:
                channel.queue_delete(each)
                channel.exchange_delete(each)


@pytest.fixture
def blocking_connection(url: str, name: Names) -> Iterator[Any]:
    """An open pika.BlockingConnection; it goes before the named queues are deleted."""
    opened = pika.BlockingConnection(pika.URLParameters(url))
    yield opened
    if opened.is_open:
        opened.close()


@pytest_asyncio.fixture
async def aio_connection(url: str, name: Names) -> AsyncIterator[AbstractConnection]:
    """An open aio-pika connection; it goes before the named queues are deleted."""
    async with await aio_pika.connect(url) as opened:
        yield opened
