"""Users and permissions of a server that is asked over HTTP."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pika
import pytest
import trustme
from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from tests.integration.auth_http.matrix import Matrix
from tests.integration.auth_http.server import AuthServer, password_of
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

Start = Callable[..., LeveretProcess]
DECISIONS = Path(__file__).parent / "decisions.json"
ACCESS = "auth_backends"


@pytest.fixture
def server() -> Iterator[AuthServer]:
    with AuthServer() as running:
        yield running


@pytest.fixture
def start(server: AuthServer, leveret_process: Start) -> Callable[..., LeveretProcess]:
    """Start a broker that asks the server, and then looks among its own users; its options may be others."""

    def run(**others: object) -> LeveretProcess:
        options = {key.replace("__", "."): value for key, value in others.items()}
        return leveret_process(settings={ACCESS: "http,internal", **server.options(), **options})

    return run


Connect = Callable[..., BlockingConnection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect as a user; the connection is closed after the test."""
    opened: list[BlockingConnection] = []

    def run(broker: LeveretProcess, name: str = "dora", password: str | None = None) -> BlockingConnection:
        parameters = pika.URLParameters(broker.url)
        parameters.credentials = pika.PlainCredentials(name, password_of(name) if password is None else password)
        opened.append(BlockingConnection(parameters))
        return opened[-1]

    yield run
    for connection in opened:
        if connection.is_open:
            connection.close()


def refusal(use: Callable[[], Any]) -> str:
    """Return the text with which a channel is closed."""
    with pytest.raises(ChannelClosedByBroker) as closed:
        use()
    return str(closed.value.reply_text)


def api(broker: LeveretProcess, name: str = "dora", password: str | None = None) -> Management:
    management = Management(broker.http_url)
    login = f"{name}:{password_of(name) if password is None else password}"
    management.authorization = "Basic " + base64.b64encode(login.encode()).decode()
    return management


@pytest.mark.slow
def test_decisions_are_those_of_rabbitmq(start: Start) -> None:
    """The file has what RabbitMQ 3.10.8 has decided; matrix.py says how it was made."""
    broker = start()
    expected = json.loads(DECISIONS.read_text("utf-8"))
    assert len(expected) > 1700
    assert Matrix(broker.url, broker.http_url).run() == expected


@pytest.mark.parametrize("method", ["get", "post"])
def test_what_is_asked(start: Start, connect: Connect, server: AuthServer, method: str) -> None:
    """As recorded from RabbitMQ 3.10.8, for the same operations."""
    server.answers |= {"vhost": "allow", "resource": "allow", "topic": "allow"}
    connection = connect(start(auth_http__http_method=method), "chloé")
    channel = connection.channel()
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "dlx"})
    channel.exchange_declare("t", "topic")
    channel.queue_bind("q", "t", "a.b")
    channel.basic_publish("t", "a.b", b"")
    channel.basic_publish("", "q", b"")
    for _ in range(2):
        channel.basic_publish("t", "a.c", b"")
    connection.close()
    user = {"username": "chloé", "vhost": "/"}
    tags = {"tags": "management policymaker"}
    variables = {"variable_map.username": "chloé", "variable_map.vhost": "/"}

    def asked(resource: str, name: str, permission: str) -> tuple[str, dict[str, str]]:
        return "resource", {**user, "resource": resource, "name": name, "permission": permission, **tags}

    def asked_topic(permission: str, key: str) -> tuple[str, dict[str, str]]:
        about = {"resource": "topic", "name": "t", "permission": permission, **tags, "routing_key": key}
        return "topic", {**user, **about, **variables}

    assert server.asked == [
        ("user", {"username": "chloé", "password": password_of("chloé")}),
        ("vhost", {**user, "ip": "127.0.0.1", **tags}),
        asked("queue", "q", "configure"),
        asked("queue", "q", "read"),
        asked("exchange", "dlx", "write"),
        asked("exchange", "t", "configure"),
        asked("queue", "q", "write"),
        asked("exchange", "t", "read"),
        asked_topic("read", "a.b"),
        asked("exchange", "t", "write"),
        asked_topic("write", "a.b"),
        asked("exchange", "amq.default", "write"),
        asked_topic("write", "a.c"),
    ]


@pytest.mark.parametrize(
    ("answer", "tags"),
    [
        ("allow administrator", ["administrator"]),
        ("  ALLOW  Administrator  other ", ["administrator", "other"]),
        ("allow", None),
        ("allow management,administrator", None),
        ("deny", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_tags_are_in_the_answer(start: Start, server: AuthServer, answer: str, tags: list[str] | None) -> None:
    server.answers["user"] = answer or " "
    management = api(start())
    if tags is not None:
        assert management.request("GET", "whoami") == {"name": "dora", "tags": tags}
        return
    reason = "Not management user" if answer.startswith("allow") else "Login failed"
    assert management.refusal("GET", "whoami") == (401, reason)


def test_a_server_that_fails_refuses(start: Start, connect: Connect, server: AuthServer) -> None:
    broker = start(auth_http__request_timeout=500, **{ACCESS: "http"})
    connection = connect(broker)
    begin = "ACCESS_REFUSED - access to queue '{}' in vhost '/' refused for user 'dora'"
    wrong = begin + ", backend rabbit_auth_backend_http returned an error: {}"
    server.answers["resource"] = "deny"
    assert refusal(lambda: connection.channel().queue_declare("a")) == begin.format("a")
    server.answers["resource"] = "maybe"
    shown = wrong.format("b", '{bad_response,"maybe"}')
    assert refusal(lambda: connection.channel().queue_declare("b")) == shown
    server.answers["resource"], server.status = "allow", 500
    assert refusal(lambda: connection.channel().queue_declare("c")) == wrong.format("c", '{500,"allow"}')
    server.status, server.delay = 200, 2.0
    assert refusal(lambda: connection.channel().queue_declare("d")) == wrong.format("d", "timeout")
    with pytest.raises(AMQPConnectionError, match="Login was refused"):
        connect(broker, "ann")
    server.delay = 0.0
    server.end()
    text = refusal(lambda: connection.channel().queue_declare("e"))
    assert text == wrong.format("e", "{failed_connect,econnrefused}")
    with pytest.raises(AMQPConnectionError, match="Login was refused"):
        connect(broker, "bert")
    begin = "rabbit_auth_backend_http failed authenticating"
    for text in ("ann: timeout", "bert: {failed_connect,econnrefused}"):
        assert f"{begin} {text}" in broker.log_text()
    assert password_of("dora") not in broker.log_text()


def test_permission_is_kept_for_a_while_and_until_permissions_change(
    start: Start, connect: Connect, server: AuthServer
) -> None:
    broker = start()
    server.answers["resource"] = "allow"
    connection = connect(broker)
    connection.channel().queue_declare("q")
    connect(broker).channel().queue_declare("q")
    asked = [path for path, _ in server.asked]
    assert (asked.count("user"), asked.count("vhost"), asked.count("resource")) == (1, 1, 1)
    server.answers["resource"] = "deny"
    connection.channel().queue_declare("q")
    guest = Management(broker.http_url)
    guest.request("PUT", "permissions", "/", "guest", body={"configure": ".*", "write": ".*", "read": ".*"})
    assert "refused for user 'dora'" in refusal(lambda: connection.channel().queue_declare("q"))


def test_others_go_on_while_the_server_is_slow(start: Start, connect: Connect, server: AuthServer) -> None:
    """Logins that hang, and a flood of wrong ones, beside clients whose answers are known."""
    broker = start()
    server.answers |= {"resource": "allow", "topic": "allow"}
    working = connect(broker)
    channel = working.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"x")
    server.delay = 3.0
    ends = time.monotonic() + 5.0

    def guess(number: int) -> None:
        while time.monotonic() < ends:
            with pytest.raises(AMQPConnectionError):
                connect(broker, f"guess{number}", "wrong")

    threads = [threading.Thread(target=guess, args=(number,), daemon=True) for number in range(32)]
    for thread in threads:
        thread.start()
    waits = []
    while time.monotonic() < ends:
        begin = time.monotonic()
        channel.basic_publish("", "q", b"x")
        waits.append(time.monotonic() - begin)
    server.delay = 0.0
    assert len(waits) > 100
    # Far below the time for which the server keeps its answers back; this machine may be busy.
    assert max(waits) < 1.5
    for thread in threads:
        thread.join(30)


def test_one_authenticates_and_the_other_authorizes(start: Start, connect: Connect, server: AuthServer) -> None:
    broker = start(**{ACCESS: "internal+http"})
    with pytest.raises(AMQPConnectionError):
        connect(broker)
    server.answers |= {"user": "allow management", "resource": "deny"}
    text = refusal(lambda: connect(broker, "guest", "guest").channel().queue_declare("q"))
    assert text == "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'guest'"
    assert api(broker, "guest", "guest").request("GET", "whoami") == {"name": "guest", "tags": ["administrator"]}
    asked = dict(server.asked)
    assert asked["user"] == {"username": "guest", "password": "guest"}
    assert asked["resource"]["tags"] == "administrator"


def test_the_server_s_certificate_is_verified(
    tmp_path: Path, start: Start, connect: Connect, server: AuthServer
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    secure = {key.replace(".", "__"): url.replace("http:", "https:") for key, url in server.options().items()}
    broker = start(**secure, auth_http__ssl_options__cacertfile=tmp_path / "ca.pem")
    assert api(broker).request("GET", "whoami")["name"] == "dora"
    broker.stop()
    broker = start(**secure, auth_http__ssl_options__cacertfile=tmp_path / "other.pem")
    with pytest.raises(AMQPConnectionError):
        connect(broker)
    broker.stop()
    broker = start(**secure, auth_http__ssl_options__verify="verify_none")
    connect(broker).close()


def test_a_file_that_is_no_certificate_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(RuntimeError, match=r"auth_http\.ssl_options\.cacertfile: .*no\.pem cannot be used"):
        start(auth_http__ssl_options__cacertfile=tmp_path / "no.pem")


def test_why_a_user_may_or_may_not(start: Start, server: AuthServer) -> None:
    server.answers["resource"] = "deny"
    broker = start()
    management = Management(broker.http_url)
    management.request("PUT", "users", "dora", body={"password": "other", "tags": ""})
    management.request("PUT", "permissions", "/", "dora", body={"configure": "", "write": "^a", "read": ".*"})

    def explain(name: str, **query: str) -> dict[str, Any]:
        url = f"{management.base}/api/users/{name}/access?{urlencode({'vhost': '/', **query})}"
        request = urllib.request.Request(url, headers={"Authorization": management.authorization})
        with urllib.request.urlopen(request) as response:
            found: dict[str, Any] = json.load(response)
        return found

    assert explain("dora", resource="queue/a/b", operation="write") == {
        "user": "dora",
        "vhost": "/",
        "operation": "write",
        "resource": "queue/a/b",
        "allowed": False,
        "decided_by": "http",
        "backends": [
            {"backend": "http", "known": True, "allowed": False, "reason": "the server denies it"},
            {"backend": "internal", "known": True, "allowed": True, "reason": "the write pattern '^a' matches 'a/b'"},
        ],
    }
    found = explain("guest", resource="exchange/amq.default", operation="configure")
    assert (found["allowed"], found["decided_by"]) == (True, "internal")
    assert [(each["known"], each["reason"]) for each in found["backends"]] == [
        (False, "Denied by the backing HTTP service"),
        (True, "the configure pattern '.*' matches 'amq.default'"),
    ]
    management.request("PUT", "vhosts", "other")
    assert not explain("nobody")["allowed"]
    assert explain("nobody")["decided_by"] is None
    assert explain("bert", vhost="other")["backends"][0]["reason"] == "the server allows it"
    of_topic = {"resource": "exchange/amq.topic", "operation": "write", "routing_key": "a.b"}
    server.answers |= {"resource": "allow", "topic": "deny"}
    found = explain("bert", **of_topic)
    assert (found["allowed"], found["backends"][0]["reason"]) == (False, "the server denies it")
    assert explain("guest", **of_topic)["backends"][1]["reason"] == (
        "user 'guest' has no topic permissions on exchange 'amq.topic', so all routing keys are allowed"
    )
    keys = {"exchange": "amq.topic", "write": "^{username}", "read": ".*"}
    management.request("PUT", "topic-permissions", "/", "guest", body=keys)
    found = explain("guest", **of_topic)
    assert (found["allowed"], found["routing_key"]) == (False, "a.b")
    assert found["backends"][1]["reason"] == (
        "the topic write pattern '^{username}' of exchange 'amq.topic' does not match 'a.b'"
    )
    assert explain("guest", **{**of_topic, "routing_key": "guest.b"})["allowed"]
    assert explain("guest", **{**of_topic, "operation": "read"})["allowed"]
    for wrong in (
        {"operation": "write"},
        {"resource": "queue/q"},
        {"resource": "q", "operation": "x"},
        {**of_topic, "operation": "configure"},
        {**of_topic, "resource": "queue/q"},
        {**of_topic, "resource": "exchange/amq.direct"},
        {"routing_key": "a.b"},
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            explain("dora", **wrong)
        assert refused.value.code == 400
        refused.value.close()


def test_leveretctl_explains(start: Start) -> None:
    broker = start(**{ACCESS: "internal,http"})
    ctl = Leveretctl(broker.http_url)
    assert ctl.output("explain_access", "guest", "--resource", "queue/q", "--operation", "write", "-q") == (
        "User 'guest' may write queue/q in vhost '/', as internal says\n"
        "internal: allows it, the write pattern '.*' matches 'q'\n"
        "http: does not know the user, Denied by the backing HTTP service\n"
    )
    of_topic = ("--resource", "exchange/amq.topic", "--operation", "write", "--routing-key", "a.b")
    assert ctl.output("explain_access", "guest", *of_topic, "-q").startswith(
        "User 'guest' may write exchange/amq.topic with routing key 'a.b' in vhost '/', as internal says\n"
    )
    assert ctl.output("explain_access", "nobody", "-q").startswith(
        "User 'nobody' may not use in vhost '/': no backend knows it\n"
    )
    assert "Virtual host 'gone' does not exist" in ctl("explain_access", "guest", "-p", "gone").err


def test_a_session_of_the_pages_is_that_of_its_user(start: Start, server: AuthServer) -> None:
    broker = start()
    base = Management(broker.http_url).base
    form = urlencode({"username": "bert", "password": password_of("bert")}).encode()
    with urllib.request.urlopen(f"{base}/api/session", form) as response:
        cookie = response.headers["set-cookie"].partition(";")[0]
    for path, expected in (("whoami", {"name": "bert", "tags": ["management"]}), ("session", None)):
        request = urllib.request.Request(f"{base}/api/{path}", headers={"Cookie": cookie})
        with urllib.request.urlopen(request) as response:
            found = json.load(response)
        assert found == (expected or {"name": "bert", "tags": ["management"]})
    assert [path for path, _ in server.asked] == ["user"]


def test_a_shovel_has_the_rights_of_its_user(start: Start, connect: Connect, server: AuthServer) -> None:
    server.answers |= {"resource": "allow", "topic": "allow"}
    broker = start()
    channel = connect(broker).channel()
    for queue in ("from", "to"):
        channel.queue_declare(queue, durable=True)
    for _ in range(100):
        channel.basic_publish("", "from", b"x")
    uri = f"amqp://dora:{quote(password_of('dora'))}@/%2F"
    definition = {"src-uri": uri, "src-queue": "from", "dest-uri": uri, "dest-queue": "to"}
    Management(broker.http_url).request("PUT", "parameters", "shovel", "/", "s", body={"value": definition})
    ends = time.monotonic() + 60
    while channel.queue_declare("to", passive=True).method.message_count < 100:
        assert time.monotonic() < ends
        time.sleep(0.05)
    asked = [fields["name"] for path, fields in server.asked if path == "resource"]
    assert {"from", "to", "amq.default"} <= set(asked)


def test_a_job_has_the_rights_of_its_user(start: Start, connect: Connect, server: AuthServer) -> None:
    """Also where the broker has a user of that name, which may do more; and not after a restart."""
    server.answers |= {"resource": "allow", "topic": "allow", "user": "allow"}
    broker = start(**{ACCESS: "internal+http"})
    channel = connect(broker, "guest", "guest").channel()
    for queue in ("from", "to"):
        channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for _ in range(100):
        channel.basic_publish("", "from", b"x", pika.BasicProperties(delivery_mode=2))
    guest = api(broker, "guest", "guest")

    def move(**options: object) -> str:
        body = {"to": "to", "job": True, **options}
        return str(guest.request("POST", "queues", "/", "from", "move-messages", body=body)["id"])

    def wait(job: str, state: str) -> dict[str, Any]:
        ends = time.monotonic() + 60
        while (found := guest.request("GET", "jobs", "/", job))["state"] != state:
            assert time.monotonic() < ends, found
            time.sleep(0.02)
        return dict(found)

    assert wait(move(limit=1), "completed")["returned"] == 1
    slow = move(rate=1)
    channel.connection.close()
    broker.restart()
    assert wait(slow, "failed")["error"] == (
        "the login of user 'guest' by 'internal+http' has ended; begin the job again"
    )
    server.answers["resource"] = "deny"
    with pytest.raises(urllib.error.HTTPError) as refused:
        move()
    assert json.load(refused.value)["reason"] == "Access refused."
    refused.value.close()


def test_a_login_over_http_is_asked_for_with_the_virtual_host_of_the_path(start: Start, server: AuthServer) -> None:
    """As recorded from RabbitMQ 3.10.8: of paths that name one that exists."""
    management = api(start(auth_cache__ttl=0), "dora")
    known = {"username": "dora", "password": password_of("dora")}
    for path, fields in (
        (("whoami",), known),
        (("queues", "/"), {**known, "vhost": "/"}),
        (("vhosts", "/"), {**known, "vhost": "/"}),
    ):
        server.asked.clear()
        management.request("GET", *path)
        assert server.asked[0] == ("user", fields)
    for method, path, fields in (
        ("PUT", ("vhosts", "new"), known),
        ("GET", ("queues", "new"), {**known, "vhost": "new"}),
    ):
        server.asked.clear()
        management.request(method, *path)
        assert server.asked[0] == ("user", fields)
