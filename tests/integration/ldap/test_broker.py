"""A broker whose users are those of a directory: what clients are told, and what becomes of them when it fails."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from leveret import LeveretThread
from tests.support.events import ChannelClosed, ConnectionClosed
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.slapd import ADMIN, ADMIN_PASSWORD, BASE, Slapd
from tests.support.wire import Connection

pytestmark = pytest.mark.ldap

LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
)
ERROR = ", backend rabbit_auth_backend_ldap returned an error: "
MISSING = {"in_group": f"cn=missing,ou=groups,{BASE}"}
SALES = {"in_group": f"cn=sales,ou=groups,{BASE}"}


@pytest.fixture
def slapd(tmp_path: Path) -> Iterator[Slapd]:
    with Slapd(tmp_path / "slapd") as server:
        yield server


@contextmanager
def broker(server: Slapd, **options: Any) -> Iterator[LeveretThread]:
    """A broker with the directory, and these options of `auth_ldap`."""
    options = {
        "servers": [server.host],
        "port": server.port,
        "user_dn_pattern": f"uid=${{username}},ou=people,{BASE}",
        "other_bind": {"user_dn": ADMIN, "password": ADMIN_PASSWORD},
        "tag_queries": {"management": True},
        **options,
    }
    backends = options.pop("backends", ["internal", "ldap"])
    settings = {"auth_backends": backends, "auth_cache.ttl": 0, "loopback_users": []}
    of_ldap = {f"auth_ldap.{name}": value for name, value in options.items()}
    with LeveretThread(options={**settings, **of_ldap}) as started:
        yield started


def as_ann(server: LeveretThread, password: str = "ann's", vhost: str = "/") -> Connection:
    return Connection(server.url, user="ann", password=password, vhost=vhost)


def refusal(server: LeveretThread, **arguments: str) -> str:
    with pytest.raises(ConnectionClosed) as closed:
        as_ann(server, **arguments)
    return closed.value.text


def test_clients_are_told_what_rabbitmq_says(slapd: Slapd) -> None:
    with broker(
        slapd, vhost_access_query={"not": {"equals": ["${vhost}", "other"]}}, resource_access_query=MISSING
    ) as it:
        Management(it.http_url).request("PUT", "vhosts", "other")
        assert refusal(it, password="wrong") == LOGIN_REFUSED
        assert refusal(it, vhost="other") == "NOT_ALLOWED - access to vhost 'other' refused for user 'ann'"
        with as_ann(it) as connection:
            text = "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'ann'" + ERROR
            channel = connection.channel()
            with channel.expect_channel_close(403, text + "ldap_evaluate_error"):
                channel.queue_declare("q")
        with broker(slapd, topic_access_query=MISSING) as other, as_ann(other) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", "topic")
            text = "ACCESS_REFUSED - access to topic 'a.b' in exchange 'x' in vhost '/' refused for user 'ann'" + ERROR
            with channel.expect_channel_close(403, text + "ldap_evaluate_error"):
                channel.publish("x", "a.b")
        slapd.stop()
        assert refusal(it) == LOGIN_REFUSED


def test_who_is_connected_goes_on_without_the_directory(slapd: Slapd) -> None:
    """And the broker's own users log in meanwhile; what is not known is refused, until the directory is back."""
    with broker(slapd, resource_access_query=SALES, timeout=1000) as it, as_ann(it) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        slapd.signal(signal.SIGSTOP)
        assert channel.queue_declare("q", passive=True).message_count == 0
        Connection(it.url).close()
        other = connection.channel()
        text = "ACCESS_REFUSED - access to queue 'other' in vhost '/' refused for user 'ann'" + ERROR + "timeout"
        with other.expect_channel_close(403, text):
            other.queue_declare("other")
        slapd.signal(signal.SIGCONT)
        deadline = time.monotonic() + 60
        while True:
            try:
                connection.channel().queue_declare("other")
                break
            except ChannelClosed:
                # A refusal is known for a second.
                assert time.monotonic() < deadline
        channel.publish("", "q", b"x")
        assert channel.get("q", no_ack=True) is not None


def test_authenticated_by_ldap_and_authorized_here(slapd: Slapd) -> None:
    """A pair, with pika: the directory knows passwords, the broker permissions and tags."""
    with broker(slapd, backends=["ldap+internal", "internal"], tag_queries={}) as it:
        api = Management(it.http_url)
        parameters = pika.URLParameters(it.url)
        parameters.credentials = pika.PlainCredentials("ann", "ann's")
        with pytest.raises(ProbableAuthenticationError):
            pika.BlockingConnection(parameters)
        api.request("PUT", "users", "ann", body={"password": "of the broker", "tags": "monitoring"})
        api.request("PUT", "permissions", "/", "ann", body={"configure": "^ann-", "write": "", "read": ".*"})
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("ann-q")
            with pytest.raises(ChannelClosedByBroker, match="access to queue 'q' in vhost '/' refused for user 'ann'"):
                channel.queue_declare("q")
        of_ann = Management(it.http_url.replace("guest:guest", "ann:ann%27s"))
        assert of_ann.request("GET", "whoami")["tags"] == ["monitoring"]
        with pytest.raises(HTTPError):
            Management(it.http_url.replace("guest:guest", "ann:wrong")).request("GET", "whoami")


def test_nothing_secret_is_logged_or_shown(slapd: Slapd, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), broker(slapd, log="network_unsafe", resource_access_query=SALES) as it:
        with as_ann(it) as connection:
            connection.channel().queue_declare("q")
        refusal(it, password="wrong-but-secret")
        api = Management(it.http_url)
        shown = str([api.request("GET", *path) for path in (("config", "effective"), ("users",), ("connections",))])
        slapd.stop()
        refusal(it, password="wrong-but-secret")
    assert "user 'ann' is uid=ann,ou=people" in caplog.text
    assert "queue / configure q: True" in caplog.text
    for secret in ("ann's", "wrong-but-secret", ADMIN_PASSWORD):
        assert secret not in caplog.text + shown
        assert repr(secret.encode()) not in caplog.text


def test_failing_logins_beside_a_working_connection(slapd: Slapd) -> None:
    """Users that nobody knows come from eight threads; who is connected does not notice, and others get in."""
    stopped, counts = threading.Event(), [0] * 8
    with broker(slapd, resource_access_query=SALES) as it, as_ann(it) as connection:

        def attack(number: int) -> None:
            while not stopped.is_set():
                with pytest.raises(ConnectionClosed):
                    Connection(it.url, user=f"nobody-{number}-{counts[number]}", password="x", vhost="/")
                counts[number] += 1

        threads = [threading.Thread(target=attack, args=(number,)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        channel = connection.channel()
        channel.queue_declare("q")
        try:
            deadline = time.monotonic() + 60
            while sum(counts) < 200:
                channel.publish("", "q", b"x")
                assert channel.get("q", no_ack=True) is not None
                assert time.monotonic() < deadline, counts
            as_ann(it).close()
        finally:
            stopped.set()
            for thread in threads:
                thread.join()


def test_the_query_that_decides_is_shown(slapd: Slapd) -> None:
    """The rights of a user who is logged in, and the part of the query that decides."""
    of_queues = {"and": [{"equals": ["${resource}", "queue"]}, {"not": SALES}]}
    with broker(slapd, resource_access_query=of_queues) as it, as_ann(it):
        shown = Leveretctl(it.http_url).output(
            "explain_access", "ann", "--resource", "queue/q", "--operation", "read", "-q"
        )
        group = SALES["in_group"]
        reason = f"auth_ldap.resource_access_query: and: not: in_group '{group}' (member) is true"
        assert shown.splitlines()[0] == "User 'ann' may not read queue/q in vhost '/', as ldap says"
        assert shown.splitlines()[-1] == f"ldap: refuses it, {reason}"


def test_the_query_that_decides_on_a_routing_key_is_shown(slapd: Slapd) -> None:
    """Of a topic exchange: first who may use the exchange, then which of its routing keys."""
    of_keys = {"for": {"permission": {"write": {"match": ["${routing_key}", "^${username}[.]"]}, "read": SALES}}}
    with broker(slapd, topic_access_query=of_keys) as it, as_ann(it) as connection:
        connection.channel().exchange_declare("x", "topic")

        def explained(key: str, operation: str) -> list[str]:
            about = ("--resource", "exchange/x", "--routing-key", key, "--operation", operation, "-q")
            return Leveretctl(it.http_url).output("explain_access", "ann", *about).splitlines()

        query = "auth_ldap.topic_access_query: for permission"
        allowed, refused = explained("ann.b", "write"), explained("bert.b", "write")
        assert allowed[-1] == f"ldap: allows it, {query} write: match 'ann.b', '^ann[.]' is true"
        assert refused[-1] == f"ldap: refuses it, {query} write: match 'bert.b', '^ann[.]' is false"
        assert (
            explained("#", "read")[-1]
            == f"ldap: allows it, {query} read: in_group '{SALES['in_group']}' (member) is true"
        )
        assert ("may write" in allowed[0], "may not write" in refused[0]) == (True, True)
        # As the explanation says, so it is.
        channel = connection.channel()
        channel.publish("x", "ann.b")
        with channel.expect_channel_close(
            403, "ACCESS_REFUSED - access to topic 'bert.b' in exchange 'x' in vhost '/' refused for user 'ann'"
        ):
            channel.publish("x", "bert.b")
