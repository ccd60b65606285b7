"""What users of a directory may do by many configurations, found out over AMQP and HTTP.

`decisions.json` has what RabbitMQ 3.10.8 with its LDAP plugin does. It is recorded from one that runs, whose options
its rabbitmqctl sets:

    python -m tests.integration.ldap.decisions --url amqp://guest:guest@127.0.0.1:5672 \
        --http-url http://guest:guest@127.0.0.1:15672 --ctl rabbitmqctl
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

from tests.support.channel import Channel
from tests.support.events import ChannelClosed, ConnectionClosed
from tests.support.management import Management
from tests.support.slapd import ADMIN, ADMIN_PASSWORD, BASE, COMPANY, Slapd, group, person
from tests.support.wire import Connection

RECORDED: Final = Path(__file__).with_name("decisions.json")

#: Decisions by user and what is done.
Decisions = dict[str, dict[str, Any]]

ENTRIES: Final = "\n".join(
    (
        COMPANY,
        person("joe", "joe's", departmentNumber="sales", description="^(orders|joe)").rstrip(),
        "mail: orders\nmail: joe-q\n",
        group("orders", "uid=bob,ou=people", "uid=joe,ou=people"),
        f"dn: cn=unique,ou=groups,{BASE}\nobjectClass: groupOfUniqueNames\ncn: unique",
        f"uniqueMember: uid=eve,ou=people,{BASE}\n",
    )
)
#: Users as they log in, with their passwords.
USERS: Final = {
    "ann": "ann's", "bob": "bob's", "eve": "eve's", "joe": "joe's", r"CORP\joe": "joe's",
}  # fmt: skip
QUEUES: Final = ("ann-q", "joe-q", "orders")
EXCHANGES: Final = {"ann-x": "topic", "orders": "direct"}
KEYS: Final = ("ann.a", "orders.b")

_PEOPLE: Final = f"uid=${{username}},ou=people,{BASE}"


def _in(name: str, kind: str = "in_group") -> str:
    return f'{{{kind}, "cn={name},ou=groups,{BASE}"}}'


def _each(configure: str, write: str, read: str) -> str:
    cases = {"configure": configure, "write": write, "read": read}
    return f"{{for, [{', '.join(f'{{permission, {name}, {query}}}' for name, query in cases.items())}]}}"


def _any(*queries: str) -> str:
    return f"{{'or', [{', '.join(queries)}]}}"


def _all(*queries: str) -> str:
    return f"{{'and', [{', '.join(queries)}]}}"


def _not(query: str) -> str:
    return f"{{'not', {query}}}"


_YES, _NO = "{constant, true}", "{constant, false}"
_OWN: Final = '{match, {string, "${name}"}, {string, "^${username}-"}}'
_MAY: Final = f'{{attribute, "uid=${{username}},ou=people,{BASE}", "description"}}'
_MAIL: Final = f'{{attribute, "uid=${{username}},ou=people,{BASE}", "mail"}}'
_DEPARTMENT: Final = '{attribute, "${user_dn}", "departmentNumber"}'


@dataclass(frozen=True, slots=True)
class Configuration:
    """Options of `auth_ldap`: queries as Erlang terms, the others as texts."""

    vhost: str = _YES
    resource: str = _YES
    topic: str = _YES
    tags: str = "[{management, {constant, true}}]"
    user_dn_pattern: str = _PEOPLE
    user_bind_pattern: str = ""
    dn_lookup_attribute: str = ""
    lookup_as_user: bool = True
    other_as_user: bool = False

    def texts(self) -> Iterator[tuple[str, str]]:
        """The options that are texts."""
        yield "user_dn_pattern", self.user_dn_pattern
        yield "dn_lookup_base", BASE
        for name in ("user_bind_pattern", "dn_lookup_attribute"):
            if value := getattr(self, name):
                yield name, value

    def queries(self) -> Iterator[tuple[str, str]]:
        """The options that are queries."""
        for name in ("vhost", "resource", "topic"):
            yield f"{name}_access_query", getattr(self, name)
        yield "tag_queries", self.tags

    def of_leveret(self, server: Slapd) -> dict[str, Any]:
        """The options for a configuration file."""
        service = {"user_dn": ADMIN, "password": ADMIN_PASSWORD}
        return {
            "servers": [server.host],
            "port": server.port,
            "dn_lookup_bind": "as_user" if self.lookup_as_user else service,
            "other_bind": "as_user" if self.other_as_user else service,
            **dict(self.texts()),
            **dict(self.queries()),
        }

    def of_rabbitmq(self, server: Slapd) -> list[str]:
        """Expressions that set the options."""
        service = f'{{"{ADMIN}", "{ADMIN_PASSWORD}"}}'
        values = {
            "servers": f'["{server.host}"]',
            "port": str(server.port),
            "user_bind_pattern": "none",
            "dn_lookup_attribute": "none",
            "dn_lookup_bind": "as_user" if self.lookup_as_user else service,
            "other_bind": "as_user" if self.other_as_user else service,
            **{name: json.dumps(text) for name, text in self.texts()},
            **dict(self.queries()),
        }
        return [f"application:set_env(rabbitmq_auth_backend_ldap, {name}, {value})" for name, value in values.items()]


CONFIGURATIONS: Final = {
    "defaults": Configuration(),
    "vhosts by group": Configuration(vhost=_in("${vhost}-users"), tags=f"[{{administrator, {_in('admins')}}}]"),
    "by group": Configuration(
        resource=_each(_in("admins"), _in("sales"), _YES),
        tags=f"[{{administrator, {_in('admins')}}}, {{management, {_in('sales')}}}, {{none, {_in('missing')}}}]",
    ),
    "another attribute": Configuration(
        resource=f'{{in_group, "cn=unique,ou=groups,{BASE}", "uniqueMember"}}', vhost=_in("all", "in_group_nested")
    ),
    "nested": Configuration(
        resource=_each(_in("all", "in_group_nested"), _in("round", "in_group_nested"), _in("sales", "in_group_nested"))
    ),
    "nested, one level": Configuration(
        resource=f'{{in_group_nested, "cn=all,ou=groups,{BASE}", "member", one_level}}',
        tags=f"[{{management, {_YES}}}, {{policymaker, {_in('all', 'in_group_nested')}}}]",
    ),
    "own names": Configuration(resource=_OWN),
    "attribute of the user": Configuration(
        resource=f'{{equals, {_DEPARTMENT}, "sales"}}', vhost=f'{{exists, "cn=${{vhost}}-users,ou=groups,{BASE}"}}'
    ),
    "attribute as pattern": Configuration(resource=f'{{match, {{string, "${{name}}"}}, {_MAY}}}'),
    "attribute with values": Configuration(
        resource=_each(f'{{equals, "${{name}}", {_MAIL}}}', f'{{match, {_MAIL}, {{string, "^${{name}}$"}}}}', _YES)
    ),
    "and, or, not": Configuration(
        resource=_each(
            _all(_in("sales"), _not(_in("admins"))), _any(_in("admins"), _OWN), _not(_any(_in("stock"), _in("admins")))
        )
    ),
    "failures": Configuration(
        resource=_each(_all(_in("missing"), _YES), _any(_in("missing"), _YES), _in("missing"))
    ),
    "failures last": Configuration(
        resource=_each(_any(_NO, _in("missing")), _any(_in("missing"), _NO), _all(_YES, _in("missing")))
    ),
    "failures of texts": Configuration(vhost='{equals, {attribute, "cn=missing", "cn"}, "x"}'),
    "by kind": Configuration(
        resource=f"{{for, [{{resource, exchange, {_in('sales')}}}, {{resource, queue, {_in('${name}')}}}]}}"
    ),
    "cases that do not fit": Configuration(
        resource=f"{{for, [{{permission, read, {_YES}}}, {{permission, write, {_NO}}}]}}"
    ),
    "topics": Configuration(
        topic='{for, [{permission, write, {match, {string, "${routing_key}"}, {string, "^${username}[.]"}}},'
        f" {{permission, read, {_in('sales')}}}]}}"
    ),
    "topics of the exchange": Configuration(
        topic=_all(
            '{equals, "${name}", "ann-x"}',
            '{match, {string, "${routing_key}"}, {string, "^orders"}}',
            '{equals, "${resource}", "topic"}',
        )
    ),
    "as the user": Configuration(
        other_as_user=True, resource=_each(_in("admins"), _in("sales"), _OWN), tags=f"[{{management, {_in('sales')}}}]"
    ),
    "searched by a service": Configuration(
        user_dn_pattern="${username}", dn_lookup_attribute="uid", lookup_as_user=False, resource=_in("sales")
    ),
    "searched by the user": Configuration(
        user_bind_pattern=_PEOPLE, user_dn_pattern="${username}", dn_lookup_attribute="uid", resource=_in("stock")
    ),
    "domain and user": Configuration(
        user_dn_pattern=f"uid=${{ad_user}},ou=people,{BASE}",
        resource=_all(
            '{equals, "${ad_domain}", "CORP"}', '{match, {string, "${name}"}, {string, "^${ad_user}-"}}'
        ),
    ),
}  # fmt: skip


class Broker:
    """A broker with the directory's users, in which `guest` may do everything."""

    def __init__(self, url: str, http_url: str) -> None:
        self._url, self._http_url = url, http_url

    def prepare(self) -> None:
        """Declare what is used."""
        management = Management(self._http_url)
        for vhost in ("shop", "other"):
            management.request("PUT", "vhosts", vhost)
            management.request(
                "PUT", "permissions", vhost, "guest", body={"configure": ".*", "write": ".*", "read": ".*"}
            )
            for name in QUEUES:
                management.request("PUT", "queues", vhost, name, body={"durable": True})
            for name, kind in EXCHANGES.items():
                management.request("PUT", "exchanges", vhost, name, body={"type": kind, "durable": True})

    def decisions(self) -> Decisions:
        """Return what all users may do."""
        found: Decisions = {}
        for user, password in USERS.items():
            found[user] = dict(self._of(user, password))
            found[user]["log in with a wrong password"] = self._logs_in(user, "wrong")
            found[user]["log in with an empty password"] = self._logs_in(user, "")
        return found

    def _of(self, user: str, password: str) -> Iterator[tuple[str, Any]]:
        allowed = self._logs_in(user, password)
        yield "log in", allowed
        yield "tags", self._tags(user, password)
        if not allowed:
            return
        yield "use other", self._uses(user, password, "other")
        is_in_shop = self._uses(user, password, "shop")
        yield "use shop", is_in_shop
        if is_in_shop:
            with Connection(self._url, user=user, password=password, vhost="shop") as connection:
                for what, do in _operations():
                    yield what, _is_allowed(connection.channel(), do)

    def _logs_in(self, user: str, password: str) -> bool:
        """Whether the user gets as far as to be told about a virtual host that does not exist."""
        try:
            Connection(self._url, user=user, password=password, vhost="none")
        except ConnectionClosed as closed:
            return closed.code == 530
        raise AssertionError(user)

    def _uses(self, user: str, password: str, vhost: str) -> bool:
        try:
            Connection(self._url, user=user, password=password, vhost=vhost).close()
        except ConnectionClosed as closed:
            if closed.code != 530:
                raise
            return False
        return True

    def _tags(self, user: str, password: str) -> list[str] | None:
        """The tags of a user; None if it has none that allow to ask for them."""
        parts = urlsplit(self._http_url)
        url = f"http://{quote(user)}:{quote(password)}@{parts.hostname}:{parts.port}"
        try:
            tags = Management(url).request("GET", "whoami")["tags"]
        except HTTPError as refused:
            if refused.code != 401:
                raise
            return None
        return sorted(tags)


def _operations() -> Iterator[tuple[str, Callable[[Channel], object]]]:
    for queue in QUEUES:
        yield f"declare {queue}", partial(Channel.queue_declare, queue=queue, durable=True)
        yield f"get {queue}", partial(Channel.get, queue=queue)
        yield f"purge {queue}", partial(Channel.queue_purge, queue=queue)
        for exchange in EXCHANGES:
            what = partial(Channel.queue_bind, queue=queue, exchange=exchange, routing_key="ann.a")
            yield f"bind {queue} to {exchange}", what
    for exchange, kind in EXCHANGES.items():
        yield f"declare {exchange}", partial(Channel.exchange_declare, exchange=exchange, type=kind, durable=True)
        for key in KEYS:
            yield f"publish {key} to {exchange}", partial(_publish, exchange=exchange, key=key)
    yield "bind to orders.b", partial(Channel.queue_bind, queue="orders", exchange="ann-x", routing_key="orders.b")
    yield "publish to the default exchange", partial(_publish, exchange="", key="orders")


def _publish(channel: Channel, exchange: str, key: str) -> None:
    channel.publish(exchange, key)
    channel.qos(0)


def _is_allowed(channel: Channel, do: Callable[[Channel], object]) -> bool:
    try:
        do(channel)
    except ChannelClosed as closed:
        if closed.code != 403:
            raise
        return False
    channel.close()
    return True


def _record(arguments: argparse.Namespace) -> Mapping[str, Decisions]:
    def evaluate(expressions: list[str]) -> None:
        command = [*shlex.split(arguments.ctl), "eval", ", ".join(expressions) + "."]
        subprocess.run(command, check=True, capture_output=True)

    broker = Broker(arguments.url, arguments.http_url)
    broker.prepare()
    evaluate(["application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_ldap])"])
    found = {}
    with TemporaryDirectory() as folder, Slapd(Path(folder) / "slapd", entries=ENTRIES) as server:
        for name, configuration in CONFIGURATIONS.items():
            evaluate(configuration.of_rabbitmq(server))
            found[name] = broker.decisions()
    return found


def main() -> None:
    """Record decisions."""
    parser = argparse.ArgumentParser()
    for name in ("--url", "--http-url", "--ctl"):
        parser.add_argument(name, required=True)
    found = _record(parser.parse_args())
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
