"""A broker of the module's own, the commands for it, and a virtual host for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.wire import Channel, Connection


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as process:
        yield process


@pytest.fixture(scope="module")
def ctl(leveret: LeveretProcess) -> Leveretctl:
    return Leveretctl(leveret.http_url)


@pytest.fixture
def vhost(ctl: Leveretctl) -> Iterator[str]:
    """A virtual host of the test's own."""
    name = f"v-{uuid.uuid4().hex[:8]}"
    ctl.output("add_vhost", name)
    yield name
    ctl.output("delete_vhost", name)


@pytest.fixture
def connection(leveret: LeveretProcess, vhost: str) -> Iterator[Connection]:
    """A connection to the test's virtual host; closed before that goes."""
    with Connection(f"{leveret.url}/{vhost}") as opened:
        yield opened


@pytest.fixture
def channel(connection: Connection) -> Channel:
    """A channel there."""
    return connection.channel()
