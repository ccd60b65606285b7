"""Rule 45.15: users over HTTP, and what becomes of their connections."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from tests.conformance.fixtures import Connect, Poll
from tests.conformance.http_api import NOT_FOUND, PASSWORD, Belongings, HttpApi, bad_request, path

SHA256, SHA512, MD5 = (f"rabbit_password_hashing_{name}" for name in ("sha256", "sha512", "md5"))


def salted(password: str, algorithm: str = "sha256") -> str:
    """Hash a password as RabbitMQ does, with a fixed salt."""
    salt = b"salt"
    return base64.b64encode(salt + hashlib.new(algorithm, salt + password.encode()).digest()).decode()


def may_log_in(api: HttpApi, user: str) -> bool:
    status = api.ask("GET", "whoami", user=user).status
    assert status in (200, 401)
    return status == 200


class TestPut:
    def test_45_15_making_and_replacing(self, api: HttpApi, belongings: Belongings) -> None:
        name = belongings.name("users")
        api.check("PUT", path("users", name), {"password": PASSWORD, "tags": "management"}, 201)
        api.check("PUT", path("users", name), {"password": PASSWORD, "tags": "management,monitoring"}, 204)
        shown = api.get(path("users", name))
        assert len(base64.b64decode(shown.pop("password_hash"))) == 36
        assert shown == {"name": name, "hashing_algorithm": SHA256, "tags": ["management", "monitoring"], "limits": {}}
        assert may_log_in(api, name)

    @pytest.mark.parametrize(
        ("tags", "expected"),
        [("", []), ("a, b ,,c", ["a", "b", "c"]), (["management", "x y"], ["management", "x y"]), ([], [])],
    )
    def test_45_15_tags(self, api: HttpApi, belongings: Belongings, tags: Any, expected: list[str]) -> None:
        name = belongings.name("users")
        api.check("PUT", path("users", name), {"tags": tags}, 201)
        assert api.get(path("users", name))["tags"] == expected

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({}, "tags_not_present"),
            ({"password": "x"}, "tags_not_present"),
            ({"tags": "", "password_hash": "not base64!"}, ["not_base64", "not base64!"]),
            ({"tags": "", "password": "p", "password_hash": "x"}, "both_password_and_password_hash_are_provided"),
        ],
    )
    def test_45_15_what_is_refused(self, api: HttpApi, belongings: Belongings, body: Any, reason: object) -> None:
        name = belongings.name("users")
        api.check("PUT", path("users", name), body, 400, bad_request(reason))
        api.check("GET", path("users", name), None, 404, NOT_FOUND)

    @pytest.mark.parametrize("name", ["ä☃", "a/b", "x y"])
    def test_45_15_any_name(self, api: HttpApi, belongings: Belongings, name: str) -> None:
        name = belongings.name("users") + name
        api.check("PUT", path("users", name), {"tags": ""}, 201)
        assert api.get(f"{path('users', name)}?columns=name") == {"name": name}
        api.check("DELETE", path("users", name), None, 204)


class TestHashes:
    @pytest.mark.parametrize(("algorithm", "digest"), [(SHA256, "sha256"), (SHA512, "sha512"), (MD5, "md5")])
    def test_45_15_hashes_let_in(self, api: HttpApi, belongings: Belongings, algorithm: str, digest: str) -> None:
        name = belongings.name("users")
        hashed = salted(PASSWORD, digest)
        body = {"tags": "management", "password_hash": hashed, "hashing_algorithm": algorithm}
        api.check("PUT", path("users", name), body, 201)
        shown = api.get(path("users", name))
        assert (shown["password_hash"], shown["hashing_algorithm"]) == (hashed, algorithm)
        assert may_log_in(api, name)

    @pytest.mark.parametrize("password_hash", ["", salted("another"), "aGVsbG8="])
    def test_45_15_others_do_not(self, api: HttpApi, belongings: Belongings, password_hash: str) -> None:
        name = belongings.user("management")
        api.check("PUT", path("users", name), {"tags": "management", "password_hash": password_hash}, 204)
        assert api.get(path("users", name))["password_hash"] == password_hash
        assert not may_log_in(api, name)

    def test_45_15_no_password_lets_nobody_in(self, api: HttpApi, belongings: Belongings) -> None:
        name = belongings.user("management")
        api.check("PUT", path("users", name), {"tags": "management"}, 204)
        assert not may_log_in(api, name)

    def test_45_15_passwords_are_hashed_with_sha256_whatever_is_asked_for(
        self, api: HttpApi, belongings: Belongings
    ) -> None:
        name = belongings.name("users")
        body = {"tags": "management", "password": PASSWORD, "hashing_algorithm": SHA512}
        api.check("PUT", path("users", name), body, 201)
        assert api.get(path("users", name))["hashing_algorithm"] == SHA256
        assert may_log_in(api, name)

    def test_45_15_what_was_exported_works_elsewhere(self, api: HttpApi, belongings: Belongings) -> None:
        exported = api.get(path("users", belongings.user("management")))
        name = belongings.name("users")
        api.check("PUT", path("users", name), {**exported, "name": name}, 201)
        assert may_log_in(api, name)


class TestDelete:
    def test_45_15_deleting(self, api: HttpApi, belongings: Belongings) -> None:
        name = belongings.user("")
        api.check("DELETE", path("users", name), None, 204)
        api.check("DELETE", path("users", name), None, 404, NOT_FOUND)

    def test_45_15_its_permissions_go_with_it(self, api: HttpApi, belongings: Belongings, own_vhost: str) -> None:
        name = belongings.user("", own_vhost)
        api.check("DELETE", path("users", name), None, 204)
        api.check("PUT", path("users", name), {"tags": ""}, 201)
        assert api.get(path("users", name, "permissions")) == []

    def test_45_15_several(self, api: HttpApi, belongings: Belongings) -> None:
        first, second = belongings.user(""), belongings.user("")
        api.check("POST", "users/bulk-delete", {"users": [first, second]}, 204)
        for name in (first, second):
            api.check("GET", path("users", name), None, 404, NOT_FOUND)

    def test_45_15_those_before_one_that_is_missing_are_gone(self, api: HttpApi, belongings: Belongings) -> None:
        first, last = belongings.user(""), belongings.user("")
        missing = "conformance-no-user"
        body = {"users": [first, missing, last]}
        api.check("POST", "users/bulk-delete", body, 400, bad_request(["no_such_user", missing]))
        api.check("GET", path("users", first), None, 404, NOT_FOUND)

    @pytest.mark.parametrize(
        ("body", "status", "document"), [({"users": []}, 204, None), ({}, 400, bad_request("[{key_missing,users}]"))]
    )
    def test_45_15_none(self, api: HttpApi, body: Any, status: int, document: object) -> None:
        api.check("POST", "users/bulk-delete", body, status, document)


class TestConnections:
    def test_45_15_deleting_closes_them(
        self, api: HttpApi, connect: Connect, belongings: Belongings, own_vhost: str
    ) -> None:
        name = belongings.user("", own_vhost)
        connection = connect(user=name, password=PASSWORD, vhost=own_vhost)
        with connection.expect_connection_close(320, f"CONNECTION_FORCED - user '{name}' is deleted", (0, 0)):
            api.check("DELETE", path("users", name), None, 204)

    def test_45_15_other_changes_leave_them(
        self, api: HttpApi, connect: Connect, belongings: Belongings, own_vhost: str
    ) -> None:
        name = belongings.user("", own_vhost)
        connection = connect(user=name, password=PASSWORD, vhost=own_vhost)
        api.check("PUT", path("users", name), {"password": "another", "tags": "management"}, 204)
        api.check("DELETE", path("permissions", own_vhost, name), None, 204)
        connection.channel().close()

    @pytest.mark.parametrize(
        ("headers", "reason"), [({}, "Closed via management plugin"), ({"X-Reason": "because"}, "because")]
    )
    def test_45_15_closing_those_of_a_user(
        self,
        api: HttpApi,
        connect: Connect,
        belongings: Belongings,
        poll: Poll,
        own_vhost: str,
        headers: Any,
        reason: str,
    ) -> None:
        name = belongings.user("", own_vhost)
        first, second = (connect(user=name, password=PASSWORD, vhost=own_vhost) for _ in range(2))
        text = f"CONNECTION_FORCED - {reason}"
        with first.expect_connection_close(320, text, (0, 0)), second.expect_connection_close(320, text, (0, 0)):
            poll(lambda: len(api.get(path("connections", "username", name))) == 2)
            api.check("DELETE", path("connections", "username", name), None, 204, headers=headers)
        # RabbitMQ may fail while it still lists what it has closed.
        poll(lambda: api.get(path("connections", "username", name)) == [])
        api.check("DELETE", path("connections", "username", name), None, 204)

    def test_45_15_nobody_has_none(self, api: HttpApi) -> None:
        assert api.get(path("connections", "username", "conformance-no-user")) == []
        api.check("DELETE", path("connections", "username", "conformance-no-user"), None, 204)


def test_45_15_users_without_permissions(api: HttpApi, belongings: Belongings, own_vhost: str) -> None:
    with_some, with_none = belongings.user("", own_vhost), belongings.user("")
    names = {user["name"] for user in api.get("users/without-permissions?columns=name")}
    assert with_none in names
    assert with_some not in names
