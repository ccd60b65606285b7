"""Tries operations of the users of `server.py` with a broker, and prints what it has decided.

The broker asks the server on a port that both know; its second backend is the internal one. RabbitMQ:
    auth_backends.1 = http
    auth_backends.2 = internal
    auth_http.user_path = http://127.0.0.1:PORT/auth/user        likewise .vhost_path, .resource_path, .topic_path

    python -m tests.integration.auth_http.matrix AMQP_URL HTTP_URL PORT > tests/integration/auth_http/decisions.json
"""

from __future__ import annotations

import json
import sys
import urllib.error
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPChannelError, AMQPConnectionError

from tests.integration.auth_http.server import USERS, AuthServer, password_of
from tests.support.management import Management

VHOSTS: Final = ("/", "other", "closed")
_QUEUES: Final = tuple(f"q{number}" for number in range(5))
_DIRECT: Final = ("d0", "d1")
_TOPICS: Final = ("t0", "t1")
_KEYS: Final = ("a", "a.b", "ü.#")

#: A method of a channel, with its arguments.
Operation = tuple[str, tuple[Any, ...]]


def operations() -> Iterator[tuple[str, Operation]]:
    """Yield the operations in a virtual host; what one changes is as before when the next one begins."""
    for queue in _QUEUES:
        yield f"declare {queue}", ("queue_declare", (queue,))
        dead = {"x-dead-letter-exchange": _DIRECT[0]}
        new = f"new-{queue}"
        yield f"declare with letters {new}", ("queue_declare", (new, False, False, False, False, dead))
        yield f"purge {queue}", ("queue_purge", (queue,))
        yield f"get {queue}", ("basic_get", (queue,))
        yield f"consume {queue}", ("basic_consume", (queue, _ignore))
        yield f"publish {queue}", ("basic_publish", ("", queue, b"x"))
        yield f"delete {queue}", ("queue_delete", (queue,))
        for exchange in (*_DIRECT, *_TOPICS):
            for key in _KEYS[:2]:
                bound = queue, exchange, key
                yield f"bind {' '.join(bound)}", ("queue_bind", bound)
                yield f"unbind {' '.join(bound)}", ("queue_unbind", bound)
    for exchange in (*_DIRECT, *_TOPICS):
        yield f"declare {exchange}", ("exchange_declare", (exchange, _type_of(exchange)))
        for key in _KEYS:
            yield f"publish {exchange} {key}", ("basic_publish", (exchange, key, b"x"))
            yield f"bind exchange {exchange} {key}", ("exchange_bind", (_DIRECT[1], exchange, key))
        yield f"delete {exchange}", ("exchange_delete", (exchange,))


def _ignore(*_: object) -> None:
    pass


def _type_of(exchange: str) -> str:
    return "topic" if exchange in _TOPICS else "direct"


def requests(vhost: str) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Yield requests of the HTTP API: method, path and body."""
    for what in ("whoami", "vhosts", "overview", "users"):
        yield "GET", (what,), None
    yield "GET", ("queues", vhost), None
    yield "GET", ("vhosts", vhost), None
    for queue in _QUEUES:
        yield "GET", ("queues", vhost, queue), None
        yield "PUT", ("queues", vhost, queue), {"durable": False}
        yield "DELETE", ("queues", vhost, queue, "contents"), None
        yield "GET", ("queues", vhost, queue, "bindings"), None
    for exchange in (*_DIRECT, *_TOPICS):
        body = {"routing_key": "a.b", "properties": {}, "payload": "x", "payload_encoding": "string"}
        yield "POST", ("exchanges", vhost, exchange, "publish"), body
        yield "GET", ("exchanges", vhost, exchange), None


class Matrix:
    """The decisions of one broker.

    Args:
        url: Its AMQP URL, with a user of its own who may do everything.
        http_url: The URL of its HTTP API.
    """

    def __init__(self, url: str, http_url: str) -> None:
        self._parameters = pika.URLParameters(url)
        self._http_url = http_url
        self.found: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Try everything, and return each outcome: `ok`, or the reply code and text."""
        management = Management(self._http_url)
        for vhost in VHOSTS[1:]:
            management.request("PUT", "vhosts", vhost)
        self._log_in()
        for name in USERS:
            for vhost in VHOSTS:
                self._use(name, vhost)
        for name in USERS:
            for vhost in VHOSTS:
                self._ask(name, vhost)
        for vhost in VHOSTS:
            self._clear(vhost)
        for vhost in VHOSTS[1:]:
            management.request("DELETE", "vhosts", vhost)
        return self.found

    def _connect(self, name: str, password: str, vhost: str) -> BlockingConnection:
        given = self._parameters
        credentials = pika.PlainCredentials(name, password)
        return BlockingConnection(pika.ConnectionParameters(given.host, given.port, vhost, credentials))

    def _log_in(self) -> None:
        for name in (*USERS, "nobody", ""):
            for password in (password_of(name), "wrong", ""):
                outcome = self._outcome(partial(self._log_in_as, name, password))
                self.found[f"{name} logs in with '{password}'"] = outcome

    def _log_in_as(self, name: str, password: str) -> None:
        self._connect(name, password, "/").close()

    def _own(self, vhost: str) -> BlockingChannel:
        own = self._parameters
        credentials: Any = own.credentials
        return self._connect(credentials.username, credentials.password, vhost).channel()

    def _prepare(self, channel: BlockingChannel) -> None:
        for queue in _QUEUES:
            channel.queue_delete(f"new-{queue}")
            channel.queue_declare(queue)
        for exchange in (*_DIRECT, *_TOPICS):
            channel.exchange_declare(exchange, _type_of(exchange))

    def _clear(self, vhost: str) -> None:
        channel = self._own(vhost)
        for queue in _QUEUES:
            channel.queue_delete(queue)
        for exchange in (*_DIRECT, *_TOPICS):
            channel.exchange_delete(exchange)
        channel.connection.close()

    def _use(self, name: str, vhost: str) -> None:
        """Try all operations of one user in one virtual host."""
        own = self._own(vhost)
        self._prepare(own)
        opened: list[BlockingConnection] = []

        def connect() -> None:
            opened[:] = [self._connect(name, password_of(name), vhost)]

        self.found[f"{name} in {vhost}"] = self._outcome(connect)
        for what, use in operations() if opened else ():
            self.found[f"{name} in {vhost}: {what}"] = self._outcome(partial(_try, opened[0], use))
            if what.startswith(("delete", "declare with")):
                self._prepare(own)
        for connection in (*opened, own.connection):
            connection.close()

    def _outcome(self, use: Callable[[], object]) -> str:
        try:
            use()
        except AMQPChannelError as error:
            return f"{error.args[0]} {error.args[1]}"
        except AMQPConnectionError as error:
            # What pika knows is inside: the reply, if there was one.
            return str(error).partition("ConnectionClosedByBroker: ")[2].rstrip("',)\"") or type(error).__name__
        return "ok"

    def _ask(self, name: str, vhost: str) -> None:
        """Send all requests of one user about one virtual host."""
        own = self._own(vhost)
        self._prepare(own)
        host = self._http_url.rpartition("@")[2]
        management = Management(f"http://{quote(name)}:{quote(password_of(name))}@{host}")
        for method, path, body in requests(vhost):
            try:
                answer = management.request(method, *path, body=body)
                outcome = "ok"
                if path[0] in ("whoami", "vhosts", "users") and len(path) == 1:
                    outcome = json.dumps([each["name"] for each in answer] if isinstance(answer, list) else answer)
            except urllib.error.HTTPError as error:
                outcome = f"{error.code} {error.read().decode()}"
                error.close()
            self.found[f"{name} sends {method} {' '.join(path)}"] = outcome
        own.connection.close()


def _try(connection: BlockingConnection, use: Operation) -> None:
    channel = connection.channel()
    name, arguments = use
    getattr(channel, name)(*arguments)
    # What is not answered is refused before this is.
    channel.basic_qos(prefetch_count=1)
    channel.close()


def write(found: dict[str, str]) -> str:
    """Return decisions as JSON, one in a line."""
    return json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    with AuthServer(int(sys.argv[3])):
        sys.stdout.write(write(Matrix(*sys.argv[1:3]).run()))
