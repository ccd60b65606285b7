"""Tokens, operations and resources, for which RabbitMQ and Leveret decide alike.

`python -m tests.conformance.oauth2_matrix` prints the expression for `rabbitmqctl eval` by which RabbitMQ takes the
tokens. With its AMQP URL and the URL of its HTTP API, it records RabbitMQ's decisions in `oauth2_decisions.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.management import Management
from tests.support.tokens import RESOURCE_SERVER, well_known_signer
from tests.support.wire import Channel, ChannelClosed, Connection, ConnectionClosed

DECISIONS: Final = Path(__file__).with_name("oauth2_decisions.json")

#: Virtual hosts of the matrix.
VHOSTS: Final = ("oauth2", "oauth2/a b", "oauth2*")
_NAMES: Final = ("orders", "orders.eu", "abb", "a b", "a/b", "a*", "häfen", "%2F")
_KEYS: Final = ("stock.nyse", "stock", "a/b", "x")
#: The topic exchange in each virtual host.
TOPIC: Final = "events"

#: The scopes of each token, without the prefix.
TOKENS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("configure:*/*",),
    ("write:*/*",),
    ("read:*/*",),
    ("read:*/*", "write:*/*", "configure:*/*"),
    ("read:*/*/*", "write:*/*/*", "configure:*/*/*"),
    ("read:oauth2/*", "write:oauth2/orders", "configure:oauth2/orders*"),
    ("read:oauth2/orders.*", "write:oauth2/*.eu", "configure:oauth2/*rd*"),
    ("read:oauth2%2Fa+b/*", "write:oauth2%2fa%20b/a+b", "configure:oauth2%2Fa*/a%20b"),
    ("read:oauth2%2A/*", "write:oauth2*/a%2A", "configure:oauth2*/a*"),
    ("read:oauth2/a*b", "write:oauth2/a%2Fb", "configure:oauth2/a*b*"),
    ("read:oauth2/a**", "write:oauth2/**", "configure:oauth2/*a*b*"),
    ("read:oauth2/h%C3%A4fen", "write:oauth2/h*fen", "configure:oauth2/h%C3*"),
    ("read:oauth2/%", "write:oauth2/%2", "configure:oauth2/%ZZ", "read:oauth2/%252F"),
    ("read:oauth2", "write:oauth2/", "configure:/orders"),
    ("read:oauth2/orders/key/more", "write:oauth2/orders/"),
    ("Read:oauth2/*", "write: oauth2/*", "configure:OAUTH2/*", "all:oauth2/*"),
    ("write:oauth2/events/stock.*", "read:oauth2/events/*", "write:oauth2/orders", "read:oauth2/orders"),
    ("write:oauth2/events/a%2Fb", "write:oauth2/orders", "read:oauth2/events/stock"),
    ("write:oauth2/events", "read:oauth2/events", "write:oauth2/orders"),
    ("write:oauth2/*/stock*nyse", "read:oauth2/ev*/*.nyse", "write:oauth2/o*"),
    ("write:*/events/*", "read:*/events/", "write:*/orders/none"),
    ("tag:administrator", "tag:management"),
    ("tag:administrator", "read:oauth2/orders"),
    ("read:*auth2/*", "write:o*2/o*s", "configure:*2*/*"),
    ("read:**/**", "write:o**/o**s", "configure:oauth2**/**"),
    ("read:oauth2/+", "write:oauth2/a%20*", "configure:oauth2/* *"),
    ("read:%6Fauth2/%6Frders", "write:oauth2/orders%2Eeu", "configure:oauth2/%2A"),
    ("configure:oauth2/orders", "configure:oauth2/orders", "write:oauth2/orders.eu", "read:oauth2/a/b"),
    ("read:/", "write://", "configure:*/"),
)


@dataclass(frozen=True)
class Request:
    """An operation on a resource: kind is configure, write, read, or topic-write and topic-read with a routing key."""

    vhost: str
    kind: str
    name: str
    key: str = ""


def requests() -> Iterator[Request]:
    for vhost in VHOSTS:
        for name in _NAMES:
            for kind in ("configure", "write", "read"):
                yield Request(vhost, kind, name)
        for key in _KEYS:
            yield Request(vhost, "topic-write", TOPIC, key)
            yield Request(vhost, "topic-read", TOPIC, key)


def recorded() -> Iterator[tuple[tuple[str, ...], dict[Request, bool]]]:
    """Yield the scopes of each token, and what RabbitMQ decides."""
    for scopes, decisions in zip(TOKENS, json.loads(DECISIONS.read_text()), strict=True):
        yield scopes, {request: each == "1" for request, each in zip(requests(), decisions, strict=True)}


def decide(url: str, scopes: tuple[str, ...], wanted: list[Request]) -> dict[Request, bool]:
    """Return what a broker decides, asking by AMQP."""
    token = well_known_signer().token(*(f"{RESOURCE_SERVER}.{scope}" for scope in scopes))
    found: dict[Request, bool] = {}
    for vhost in VHOSTS:
        here = [each for each in wanted if each.vhost == vhost]
        try:
            with Connection(url, user="", password=token, vhost=vhost) as connection:
                for request in here:
                    found[request] = _is_allowed(connection.channel(), request)
        except ConnectionClosed as closed:
            if closed.code != 530:
                raise
            found.update(dict.fromkeys(here, False))
    return found


def _is_allowed(channel: Channel, request: Request) -> bool:
    """Try an operation; what it would do it about does not exist, so that it changes nothing."""
    try:
        match request.kind:
            case "configure":
                channel.exchange_delete(request.name)
            case "write":
                channel.publish(request.name, "key")
            case "read":
                channel.get(request.name)
            case "topic-write":
                channel.publish(TOPIC, request.key)
            case "topic-read":
                channel.queue_bind("orders", TOPIC, request.key)
        channel.sync()
        channel.close()
    except ChannelClosed as closed:
        if closed.code not in (403, 404):
            raise
        return closed.code == 404
    return True


def make_resources(management: Management) -> None:
    for vhost in VHOSTS:
        management.request("PUT", "vhosts", vhost)
        management.request(
            "PUT", "permissions", vhost, "guest", body=dict.fromkeys(("configure", "write", "read"), ".*")
        )
        management.request("PUT", "exchanges", vhost, TOPIC, body={"type": "topic"})


def remove_resources(management: Management) -> None:
    for vhost in VHOSTS:
        management.request("DELETE", "vhosts", vhost)


def _record(url: str, management_url: str) -> None:
    management = Management(management_url)
    make_resources(management)
    lines = []
    for scopes in TOKENS:
        found = decide(url, scopes, [*requests()])
        lines.append("".join("01"[found[each]] for each in requests()))
    DECISIONS.write_text(json.dumps(lines, indent=0) + "\n")
    remove_resources(management)


def _expression() -> str:
    """Return Erlang that lets RabbitMQ take the tokens of `well_known_signer`."""
    signer, plugin = well_known_signer(), "rabbitmq_auth_backend_oauth2"
    jwk = ", ".join(f'<<"{name}">> => <<"{value}">>' for name, value in signer.jwk().items())
    keys = f'[{{default_key, <<"{signer.kid}">>}}, {{signing_keys, #{{<<"{signer.kid}">> => {{map, #{{{jwk}}}}}}}}}]'
    backends = "[rabbit_auth_backend_oauth2, rabbit_auth_backend_internal]"
    return (
        f'application:set_env({plugin}, resource_server_id, <<"{RESOURCE_SERVER}">>), '
        f"application:set_env({plugin}, key_config, {keys}), "
        f"application:set_env(rabbit, auth_backends, {backends})."
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        _record(*sys.argv[1:])
    else:
        sys.stdout.write(_expression() + "\n")
