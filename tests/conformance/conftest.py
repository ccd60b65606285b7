"""The broker under test: one given by options, or a Leveret that each test process starts."""

from __future__ import annotations

import os
import time
import urllib.error
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from pamqp import commands

from tests.conformance.accounts import VHOSTS, Accounts
from tests.conformance.fixtures import Connect, Poll, Refuse, SetPolicy, Unique
from tests.conformance.http_api import Belongings, HttpApi
from tests.conformance.operator_policies import PolicySet, only
from tests.conformance.reply_texts import invalid_argument
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Channel, Connection, parse_url


@dataclass(frozen=True)
class Broker:
    """URLs of the broker under test, and the accounts created there."""

    url: str
    http_url: str
    accounts: Accounts


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--broker-url",
        help="amqp://user:password@host:port/vhost of the broker under test; default: $BROKER_URL, or a new Leveret",
    )
    group.addoption(
        "--management-url",
        help="http://user:password@host:port of its HTTP API; default: $MANAGEMENT_URL, or AMQP port + 10000",
    )


def _given(config: pytest.Config, option: str, variable: str) -> str | None:
    # A run of all tests meets this conftest too late for its options, but not for the environment.
    value: str | None = config.getoption(option, default=None)
    return value or os.environ.get(variable)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect departures from RabbitMQ 3.10.8, and plugins that it does not have, if the broker is RabbitMQ."""
    url = _given(config, "--broker-url", "BROKER_URL")
    marked = [item for item in items if item.get_closest_marker("departs") or item.get_closest_marker("plugin")]
    if not url or not marked or not _is_rabbitmq(url):
        return
    plugins = _plugins(_given(config, "--management-url", "MANAGEMENT_URL") or _default_management_url(url))
    left_out = set()
    for item in marked:
        needed = {marker.args[0] for marker in item.iter_markers("plugin")}
        if item.get_closest_marker("departs") or not needed <= plugins:
            left_out.add(item)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _plugins(http_url: str) -> set[str]:
    """Return the exchange types and exchanges that it has, its plugins, and the pages of these, such as shovel."""
    management = Management(http_url)
    types = {each["name"] for each in management.request("GET", "overview")["exchange_types"]}
    types |= {each["name"] for each in management.request("GET", "exchanges")}
    types |= {name for node in management.request("GET", "nodes") for name in node.get("enabled_plugins", ())}
    return types | {each["javascript"].removesuffix(".js") for each in management.request("GET", "extensions")}


def _is_rabbitmq(url: str) -> bool:
    """Return whether the broker is RabbitMQ: Leveret sends the same product, but its own name as platform."""
    with Connection(url) as connection:
        said = {key: value for key, _, value in connection.start.server_properties}
        return said["product"] == "RabbitMQ" and str(said["platform"]).startswith("Erlang")


def _default_management_url(url: str) -> str:
    address = parse_url(url)
    return f"http://{address.user}:{address.password}@{address.host}:{address.port + 10000}"


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test with its accounts."""
    url = _given(request.config, "--broker-url", "BROKER_URL")
    if url is None:
        directory = tmp_path_factory.mktemp("leveret")
        accounts = Accounts("conformance-", "/", "guest")
        config = directory / "leveret.yaml"
        config.write_text(yaml.safe_dump({"definitions": accounts.definitions()}))
        with LeveretProcess(directory, config=config) as process:
            yield Broker(process.url, process.http_url, accounts)
        return
    address = parse_url(url)
    http_url = _given(request.config, "--management-url", "MANAGEMENT_URL")
    accounts = Accounts(f"conformance-{os.getpid()}-", address.vhost, address.user)
    http_url = http_url or _default_management_url(url)
    with _imported(Management(http_url), accounts):
        yield Broker(url, http_url, accounts)


def _imported(management: Management, accounts: Accounts) -> ExitStack:
    definitions = accounts.definitions()
    stack = ExitStack()
    for kind in ("users", "vhosts"):
        for thing in definitions[kind]:
            stack.callback(management.request, "DELETE", kind, thing["name"])
    management.request("POST", "definitions", body=definitions)
    for name, (granted, _) in VHOSTS.items():
        if not granted:
            _revoke(management, accounts.vhost(name), accounts.default_user)
    return stack


def _revoke(management: Management, vhost: str, user: str) -> None:
    # RabbitMQ gives the user who creates a virtual host all permissions there.
    try:
        management.request("DELETE", "permissions", vhost, user)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 404:
            raise


@pytest.fixture(scope="session")
def broker_url(broker: Broker) -> str:
    return broker.url


@pytest.fixture(scope="session")
def accounts(broker: Broker) -> Accounts:
    return broker.accounts


@pytest.fixture(scope="session")
def management(broker: Broker) -> Management:
    return Management(broker.http_url)


@pytest.fixture(scope="session")
def api(management: Management) -> HttpApi:
    """The HTTP API of the broker under test, for arbitrary requests."""
    return HttpApi(management)


@pytest.fixture
def belongings(api: HttpApi) -> Iterator[Belongings]:
    """Creates virtual hosts and users, and removes them after the test."""
    with Belongings(api) as made:
        yield made


@pytest.fixture
def own_vhost(belongings: Belongings) -> str:
    return belongings.vhost()


@pytest.fixture(scope="session")
def vhost(broker_url: str) -> str:
    return parse_url(broker_url).vhost


@pytest.fixture
def unique(broker_url: str) -> Iterator[Unique]:
    """A function that returns new names; queues and exchanges with these names are deleted after the test."""
    given: list[str] = []

    def name(hint: str = "q") -> str:
        given.append(f"conformance.{hint}.{uuid.uuid4().hex[:12]}")
        return given[-1]

    yield name
    if given:
        with Connection(broker_url) as connection:
            channel = connection.channel()
            for each in given:
                channel.queue_delete(each)
                channel.exchange_delete(each)


@pytest.fixture
def refuse(channel: Channel, unique: Unique, vhost: str) -> Refuse:
    """A function that declares a queue, and expects that one of its arguments is named as invalid, for a reason."""

    def declare(key: str, reason: str, **options: Any) -> None:
        queue = unique()
        with channel.expect_channel_close(406, invalid_argument(key, queue, vhost, reason), commands.Queue.Declare):
            channel.queue_declare(queue, **options)

    return declare


@pytest.fixture
def connect(broker_url: str, unique: Unique) -> Iterator[Connect]:
    """A function that opens connections (`Connection` without the URL), closed after the test."""
    with ExitStack() as stack:

        def open_connection(**options: object) -> Connection:
            opened = Connection(broker_url, **options)  # type: ignore[arg-type]
            stack.callback(opened.close)
            return opened

        yield open_connection


@pytest.fixture
def connection(connect: Connect) -> Connection:
    return connect()


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def policies(management: Management, vhost: str) -> Iterator[PolicySet]:
    """Creates policies in the virtual host of the tests, and removes them after the test."""
    with PolicySet(management, vhost) as made:
        yield made


@pytest.fixture
def policy(management: Management, vhost: str) -> Iterator[SetPolicy]:
    """A function that sets or replaces the policy of a queue; an empty definition removes it.

    Its arguments are the queue's name, the definition, and the keywords of `PolicySet.set`. Tests with more than one
    policy per queue use `policies`.
    """
    with PolicySet(management, vhost) as made:

        def give(queue: str, definition: dict[str, Any], **options: Any) -> None:
            if definition:
                made.set(only(queue), definition, name=queue, **options)
            else:
                made.clear(queue)

        yield give


@pytest.fixture(scope="session")
def poll() -> Poll:
    """A function that waits until a condition holds, for at most 180 s."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 180
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come to hold within 180 s"
            time.sleep(0.05)

    return wait
