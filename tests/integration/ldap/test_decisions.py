"""What users of a directory may do is what RabbitMQ's LDAP plugin lets them do; see `decisions.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from leveret import LeveretThread
from tests.integration.ldap.decisions import CONFIGURATIONS, ENTRIES, RECORDED, Broker
from tests.support.slapd import Slapd

pytestmark = pytest.mark.ldap


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("slapd") / "it", entries=ENTRIES) as server:
        yield server


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_decisions_are_those_of_rabbitmq(slapd: Slapd, name: str) -> None:
    of_ldap = {f"auth_ldap.{option}": value for option, value in CONFIGURATIONS[name].of_leveret(slapd).items()}
    with LeveretThread(options={"auth_backends": ["internal", "ldap"], **of_ldap}) as server:
        assert server.http_url
        broker = Broker(server.url, server.http_url)
        broker.prepare()
        assert broker.decisions() == json.loads(RECORDED.read_text())[name]
