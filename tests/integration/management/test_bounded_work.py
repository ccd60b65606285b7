"""Requests that make much work: others are served meanwhile, and the work has an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

#: Seconds. Some tens of milliseconds are usual; a machine that has other things to do takes longer.
_PATIENCE = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("bounded")) as process:
        yield process


@pytest.fixture(scope="module")
def api(broker: LeveretProcess) -> HttpApi:
    return HttpApi(Management(broker.http_url))


class Bystander(threading.Thread):
    """An AMQP client that has nothing to do with the work; it measures how long it waits for answers."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self._connection = Connection(url, timeout=120)
        self._done = threading.Event()

    def __enter__(self) -> Bystander:
        self._channel = self._connection.channel()
        self._channel.queue_declare("bystander")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()
        self._connection.close()

    def run(self) -> None:
        while not self._done.wait(0.002):
            started = time.monotonic()
            self._channel.queue_declare("bystander", passive=True)
            self.longest = max(self.longest, time.monotonic() - started)


def test_filters_that_try_for_years_are_refused_and_hold_nobody_up(broker: LeveretProcess, api: HttpApi) -> None:
    names = [f"{'a' * 60}{number}!" for number in range(200)]
    api.check("POST", path("definitions", "/"), {"queues": [_queue(name) for name in names]}, 204)
    pattern = quote("(a|a|aa)+$")

    def ask(_: int) -> int:
        return api.ask("GET", f"queues?page=1&use_regex=true&name={pattern}").status

    with Bystander(broker.url) as bystander, ThreadPoolExecutor(60) as pool:
        assert set(pool.map(ask, range(60))) == {400}
    assert bystander.longest < _PATIENCE
    reply = api.ask("GET", f"queues?page=1&use_regex=true&name={pattern}").document
    assert "takes too long" in reply["reason"]


def test_policies_that_try_for_years_match_nothing_and_hold_nobody_up(broker: LeveretProcess, api: HttpApi) -> None:
    names = [f"{'a' * 60}{number}!" for number in range(200)]
    api.check("POST", path("definitions", "/"), {"queues": [_queue(name) for name in [*names, "aaa"]]}, 204)
    with Bystander(broker.url) as bystander:
        for number in range(5):
            policy = {"pattern": "^(a|a|aa)+$", "definition": {"max-length": 1}, "priority": number}
            api.check("PUT", path("policies", "/", f"slow{number}"), policy, 201)
    assert bystander.longest < _PATIENCE
    found = {each["name"]: each.get("policy") for each in api.get("queues")}
    assert {found[name] for name in names} == {None}
    assert found["aaa"] == "slow4"
    assert broker.log_text().count("names on which it takes too long do not match") == 5, "a line for each pattern"


def _queue(name: str) -> dict[str, object]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"arguments":{"x":[' + b",".join([b"[]"] * 2_500_000) + b"]}}",
        b'{"x":[' + b",".join([b'{"a":1}'] * 900_000) + b"]}",
        b'{"arguments":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=["wide", "objects", "deep"],
)
def test_long_bodies_hold_nobody_up(broker: LeveretProcess, api: HttpApi, body: bytes) -> None:
    with Bystander(broker.url) as bystander:
        reply = api.ask("PUT", path("queues", "/", "from-a-long-body"), body)
    assert reply.status in (201, 400)
    assert bystander.longest < _PATIENCE
