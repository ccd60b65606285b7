"""Rules 41.1 to 41.8: paths, methods, logins and errors of the HTTP API."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.conformance.http_api import NOT_FOUND, PASSWORD, HttpApi, basic
from tests.conformance.http_scene import Scene
from tests.support.management import Management

WHOAMI = "/api/whoami"


@pytest.fixture(scope="module")
def scene(management: Management, broker_url: str) -> Iterator[Scene]:
    """A virtual host with one queue whose name needs encoding."""
    with Scene(management, broker_url) as made:
        made.connect().channel().queue_declare("a/b {c}+d", durable=True)
        yield made


@pytest.mark.parametrize(
    "path",
    [
        "whoami/",
        "queues/{v}/",
        "queues/{v}/a%2Fb%20%7Bc%7D+d",
        "queues/{v}/a%2fb%20%7bc%7d%2Bd",
        "queues/{v}/a%2Fb%20%7Bc%7D+d/",
        "exchanges/{v}/amq.default",
        "queues/{v}/a%2Fb%20%7Bc%7D+d/bindings/",
        "whoami?x=1",
    ],
)
def test_41_1_path_segments_are_decoded_once_and_may_end_in_a_slash(scene: Scene, path: str) -> None:
    assert scene.get(path).status == 200


def test_41_1_names_come_back_as_they_are(scene: Scene) -> None:
    assert scene.get("queues/{v}?columns=name").document == [{"name": "a/b {c}+d"}]


@pytest.mark.parametrize(
    "path",
    [
        "/api/nosuch",
        "/nosuch",
        "/api//whoami",
        "/API/whoami",
        "/api/queues/%252F",
        "/api/queues/no-such-vhost",
        "/api/queues/no-such-vhost/q",
        "/api/queues/%2F/no-such-queue",
        "/api/exchanges/%2F/no-such-exchange",
        "/api/vhosts/no-such-vhost",
        "/api/connections/no-such-connection",
        "/api/channels/no-such-channel",
        "/api/vhosts/no-such-vhost/connections",
        "/api/vhosts/no-such-vhost/channels",
        "/api/bindings/%2F/e/amq.topic/q/no-such-queue/key",
        "/api/aliveness-test/no-such-vhost",
        "/api/healthchecks/node/no-such-node@x",
    ],
)
def test_41_8_what_does_not_exist_is_404(api: HttpApi, path: str) -> None:
    reply = api.send("GET", path)
    assert (reply.status, reply.document) == (404, NOT_FOUND)
    assert reply.headers["content-type"] == "application/json"


def test_41_2_options_needs_no_login(api: HttpApi) -> None:
    reply = api.send("OPTIONS", "/api/queues/%2F/q", authorization=None)
    assert (reply.status, reply.headers["allow"], reply.body) == (200, "HEAD, GET, PUT, DELETE, OPTIONS", b"")


def test_41_2_head_is_get_without_a_body(api: HttpApi) -> None:
    get, head = (api.send(method, WHOAMI) for method in ("GET", "HEAD"))
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(get.body)))


def test_41_3_headers_of_an_answer(api: HttpApi) -> None:
    headers = api.send("GET", WHOAMI).headers
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-cache"
    assert headers["vary"] == "accept, accept-encoding, origin"
    assert "content-security-policy" in headers


@pytest.mark.parametrize("accept", ["*/*", "application/*", "application/json", "text/html, application/json;q=0.9"])
def test_41_4_what_accepts_json_gets_it(api: HttpApi, accept: str) -> None:
    assert api.send("GET", WHOAMI, headers={"accept": accept}).status == 200


def test_41_3_gzip_when_asked_for(api: HttpApi) -> None:
    path = "/api/overview?columns=exchange_types,rabbitmq_version"
    reply = api.send("GET", path, headers={"accept-encoding": "gzip"})
    assert reply.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(reply.body)) == api.send("GET", path).document


def test_41_5_no_login_is_401_without_a_body(api: HttpApi) -> None:
    reply = api.send("GET", "/api/overview", authorization=None)
    assert (reply.status, reply.body) == (401, b"")
    assert reply.headers["www-authenticate"].startswith("Basic realm=")


@pytest.mark.parametrize("authorization", [basic("guest", "wrong"), basic("no-such-user", "guest"), "Bearer abc"])
def test_41_5_a_wrong_login_is_401(api: HttpApi, authorization: str) -> None:
    reply = api.send("GET", "/api/overview", authorization=authorization)
    assert (reply.status, reply.document) == (401, {"error": "not_authorized", "reason": "Login failed"})
    if not authorization.startswith("Bearer"):
        assert reply.headers["www-authenticate"].startswith("Basic realm=")


@pytest.mark.parametrize("authorization", ["Basic !!!", "Digest x"])
def test_41_5_a_malformed_login_is_400(api: HttpApi, authorization: str) -> None:
    reply = api.send("GET", WHOAMI, authorization=authorization)
    assert (reply.status, reply.body) == (400, b"")


def test_41_5_a_user_without_tags_has_no_access(scene: Scene) -> None:
    reply = scene.get("overview", scene.user(""))
    assert (reply.status, reply.document) == (401, {"error": "not_authorised", "reason": "Not management user"})
    assert "www-authenticate" not in reply.headers


def test_41_6_a_login_by_a_form(api: HttpApi, scene: Scene) -> None:
    header = scene.user("management")
    name = scene.get("whoami", header).document["name"]
    form = f"username={name.replace('/', '%2F')}&password={PASSWORD}".encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    reply = api.send("POST", "/api/login", headers=headers, body=form, authorization=None)
    assert (reply.status, reply.document) == (200, "ok")
    reply = api.send("POST", "/api/login", headers=headers, body=form + b"x", authorization=None)
    assert (reply.status, reply.document["reason"]) == (401, "Login failed")


def test_41_5_auth_needs_no_login(api: HttpApi) -> None:
    document = api.send("GET", "/api/auth", authorization=None).document
    wanted = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
    assert {key: document.get(key) for key in wanted} == wanted


@pytest.mark.departs("none")
def test_41_1_a_lone_slash_is_the_default_vhost_to_celery_flower(api: HttpApi) -> None:
    assert api.send("GET", "/api/queues//").status == 200


@pytest.mark.departs("none")
def test_41_4_a_character_set_behind_the_accepted_type_is_fine(api: HttpApi) -> None:
    reply = api.send("GET", "/api/overview", headers={"accept": "application/json; charset=utf-8"})
    assert reply.status == 200
