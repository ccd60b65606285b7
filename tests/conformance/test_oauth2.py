"""Rules of chapter 52: users of an OAuth 2 provider.

A RabbitMQ under test needs the plugin rabbitmq_auth_backend_oauth2, and the key of the tests' tokens:
`python -m tests.conformance.oauth2_matrix` prints the expression for `rabbitmqctl eval`.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.oauth2_matrix import TOKENS, VHOSTS, decide, make_resources, recorded, remove_resources, requests
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tokens import RESOURCE_SERVER, Signer, well_known_signer
from tests.support.wire import ChannelClosed, Connection, ConnectionClosed

pytestmark = pytest.mark.plugin("rabbitmq_auth_backend_oauth2")

_ALL = tuple(f"{RESOURCE_SERVER}.{kind}:*/*" for kind in ("configure", "write", "read"))
_ADMINISTRATOR = f"{RESOURCE_SERVER}.tag:administrator"
_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
)
_NOT_RENEWED = "NOT_ALLOWED - New secret was refused by one of the backends"


@dataclass(frozen=True)
class Tokens:
    """A broker that takes the tokens of `well_known_signer`."""

    url: str
    http_url: str

    def connect(self, token: str, user: str = "somebody", vhost: str = "/") -> Connection:
        return Connection(self.url, user=user, password=token, vhost=vhost)

    def whoami(self, authorization: str) -> Any:
        """Return what the HTTP API says of a user; the status of a refusal."""
        try:
            return Management(self.http_url).request("GET", "whoami", headers={"Authorization": authorization})
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture(scope="module")
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    """The broker under test, or a new Leveret."""
    if request.config.getoption("--broker-url", default=None) or "BROKER_URL" in os.environ:
        broker = request.getfixturevalue("broker")
        yield Tokens(broker.url, broker.http_url)
        return
    directory = tmp_path_factory.mktemp("oauth2")
    (directory / "key.pem").write_bytes(well_known_signer().pem())
    options = {
        "auth_backends": ["oauth2", "internal"],
        "auth_oauth2": {
            "resource_server_id": RESOURCE_SERVER,
            "signing_keys": {well_known_signer().kid: str(directory / "key.pem")},
            "default_key": well_known_signer().kid,
        },
    }
    config = directory / "leveret.yaml"
    config.write_text(yaml.safe_dump(options))
    with LeveretProcess(directory, config=config) as process:
        yield Tokens(process.url, process.http_url)


def token(*scopes: str, **claims: Any) -> str:
    return well_known_signer().token(*scopes, **claims)


def update_secret(connection: Connection, secret: str) -> None:
    connection.rpc(commands.Connection.UpdateSecret, new_secret=secret, reason="the old one expires")


def test_52_1_and_52_3_scopes_decide_as_recorded(tokens: Tokens) -> None:
    management, count = Management(tokens.http_url), 0
    make_resources(management)
    try:
        for scopes, decisions in recorded():
            assert decide(tokens.url, scopes, [*requests()]) == decisions, scopes
            count += len(decisions)
    finally:
        remove_resources(management)
    assert count == len(TOKENS) * len([*requests()]) >= 2000
    assert {each.vhost for each in requests()} == {*VHOSTS}


@pytest.mark.parametrize(
    ("claims", "user", "name"),
    [
        ({}, "somebody", "alice"),
        ({"client_id": "program"}, "somebody", "program"),
        ({"sub": None}, "somebody", "somebody"),
    ],
)
def test_52_2_the_user_is_the_one_of_the_token(tokens: Tokens, claims: dict[str, Any], user: str, name: str) -> None:
    said = token(_ADMINISTRATOR, f"{RESOURCE_SERVER}.tag:monitoring", *_ALL, **claims)
    with tokens.connect(said, user) as connection:
        channel = connection.channel()
        with channel.expect_channel_close(406, f"PRECONDITION_FAILED - user_id property set to 'else' but authenticated"
                                          f" user was '{name}'", commands.Basic.Publish):  # fmt: skip
            channel.publish("", "queue", properties={"user_id": "else"})
    if claims.get("sub", "") is not None:
        assert tokens.whoami(f"Bearer {said}") == {"name": name, "tags": ["administrator", "monitoring"]}


def _tampered() -> str:
    header, _, signature = token(_ALL[2]).split(".")
    claims = json.dumps({"sub": "alice", "aud": [RESOURCE_SERVER], "scope": [*_ALL]}).encode()
    return f"{header}.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.{signature}"


REFUSED: dict[str, Callable[[], str]] = {
    "no token": lambda: "secret",
    "expired": lambda: token(*_ALL, exp=int(time.time()) - 60),
    "another audience": lambda: token(*_ALL, aud=["else"]),
    "no audience": lambda: token(*_ALL, aud=None),
    "no scopes": lambda: token(scope=None),
    "scopes that are no strings": lambda: token(scope=[1]),
    "another key": lambda: Signer("P-256", well_known_signer().kid).token(*_ALL),
    "a key that nobody has": lambda: Signer("P-256", "forged", well_known_signer().key).token(*_ALL),
    "changed": _tampered,
}


@pytest.mark.parametrize("why", REFUSED)
def test_52_4_tokens_that_are_refused(tokens: Tokens, why: str) -> None:
    said = REFUSED[why]()
    with pytest.raises(ConnectionClosed, match=_REFUSED):
        tokens.connect(said)
    assert tokens.whoami(f"Bearer {said}") == 401
    tokens.connect(token(*_ALL)).close()


def test_52_5_another_token_goes_on(tokens: Tokens, unique: Unique) -> None:
    name = unique()
    with tokens.connect(token(*_ALL)) as connection:
        connection.channel().queue_declare(name, exclusive=True)
        update_secret(connection, token(_ALL[2], exp=int(time.time()) + 600))
        # RabbitMQ's other channel has cached what the old token allows.
        channel = connection.channel()
        assert channel.get(name) is None
        with pytest.raises(ChannelClosed, match=f"access to queue '{name}' in vhost '/' refused for user 'alice'"):
            channel.queue_delete(name)
        update_secret(connection, token(*_ALL))
        connection.channel().queue_delete(name)


@pytest.mark.parametrize("why", ["no token", "another audience", "another key", "changed"])
def test_52_6_a_wrong_token_ends_the_connection(tokens: Tokens, why: str) -> None:
    connection = tokens.connect(token(*_ALL))
    with connection, connection.expect_connection_close(530, _NOT_RENEWED, commands.Connection.UpdateSecret):
        update_secret(connection, REFUSED[why]())


@pytest.mark.departs
@pytest.mark.parametrize("claims", [{"sub": "mallory"}, {"exp": 1}])
def test_52_7_another_users_token_ends_it_too(tokens: Tokens, claims: dict[str, Any]) -> None:
    connection = tokens.connect(token(*_ALL))
    with connection, connection.expect_connection_close(530, _NOT_RENEWED, commands.Connection.UpdateSecret):
        update_secret(connection, token(*_ALL, **claims))


@pytest.mark.departs
def test_52_8_a_connection_ends_with_its_token(tokens: Tokens) -> None:
    soon = int(time.time()) + 3
    with tokens.connect(token(*_ALL, exp=soon)) as connection, tokens.connect(token(*_ALL, exp=soon)) as renewed:
        update_secret(renewed, token(*_ALL, exp=soon + 600))
        with connection.expect_connection_close(320, "CONNECTION_FORCED - credential expired"):
            pass
        assert time.time() >= soon
        renewed.channel().sync()


@pytest.mark.departs
@pytest.mark.parametrize("claims", [{"nbf": 2**33}, {"exp": 1.5}, {"exp": "2**33"}, {"sub": 5}])
def test_52_9_what_rabbitmq_does_not_look_at(tokens: Tokens, claims: dict[str, Any]) -> None:
    with pytest.raises(ConnectionClosed, match=_REFUSED):
        tokens.connect(token(*_ALL, **claims))
