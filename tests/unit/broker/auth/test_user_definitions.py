from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.passwords import MD5, SHA256, SHA512, hash_password
from leveret.broker.auth.user_definitions import load, read_tags
from leveret.broker.config.config_errors import DefinitionsError
from leveret.policies.permissions import Permissions

HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


@pytest.fixture
def accounts() -> Accounts:
    accounts = Accounts()
    accounts.add_user("old", "old-password", ("monitoring",))
    accounts.set_permissions("old", "/", "a", "b", "c")
    return accounts


def user(**entry: object) -> dict[str, Any]:
    return {"users": [{"name": "new", "tags": [], **entry}]}


def loaded(accounts: Accounts, document: dict[str, Any]) -> User:
    load(accounts, document)
    return accounts.users["new"]


def test_an_export_of_rabbitmq(accounts: Accounts) -> None:
    load(
        accounts,
        {
            "rabbit_version": "3.10.8",
            "users": [
                {
                    "name": "exported",
                    "password_hash": HASH,
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": ["management", "impersonator"],
                    "limits": {"max-connections": 10, "max-channels": -1},
                }
            ],
            "vhosts": [{"name": "v"}],
            "permissions": [{"user": "exported", "vhost": "v", "configure": "", "write": "^w", "read": ".*"}],
            "topic_permissions": [
                {"user": "exported", "vhost": "v", "exchange": "orders", "write": "^order", "read": ".*"}
            ],
            "parameters": [],
        },
        {"v"},
    )
    exported = accounts.users["exported"]
    assert accounts.verify("exported", b"test12") is exported
    assert exported.tags == ("management", "impersonator")
    assert (exported.limits.max_connections, exported.limits.max_channels) == (10, -1)
    assert accounts.permissions("exported", "v") == Permissions("", "^w", ".*")
    topic = accounts.all_topic_permissions["exported", "v", "orders"]
    assert (topic.write, topic.read) == ("^order", ".*")


def test_an_empty_document_changes_nothing(accounts: Accounts) -> None:
    before = accounts.generation
    load(accounts, {"users": [], "permissions": None, "queues": 1})
    assert accounts.generation == before


@pytest.mark.parametrize("entry", [{}, {"password": ""}, {"password_hash": ""}])
def test_a_user_without_password_cannot_log_in(accounts: Accounts, entry: dict[str, str]) -> None:
    assert loaded(accounts, user(**entry)).password_hash == ""
    assert accounts.verify("new", b"") is None


@pytest.mark.parametrize(
    ("version", "algorithm"),
    [
        ({"rabbit_version": "3.5.7"}, MD5),
        ({"rabbit_version": "2.8.1"}, MD5),
        ({"rabbitmq_version": "3.1.0"}, MD5),
        ({"rabbit_version": "3.6.0"}, SHA256),
        ({"rabbit_version": "3.10.8"}, SHA256),
        ({}, SHA256),
    ],
)
def test_old_exports_do_not_name_the_algorithm(accounts: Accounts, version: dict[str, str], algorithm: str) -> None:
    document = {**version, **user(password_hash=hash_password("pw", algorithm))}
    assert loaded(accounts, document).hashing_algorithm == algorithm


def test_a_user_that_exists_is_replaced_and_keeps_its_permissions(accounts: Accounts) -> None:
    before = accounts.users["old"]
    load(accounts, {"users": [{"name": "old", "password": "x", "tags": "", "limits": {"max-channels": 1}}]})
    assert accounts.verify("old", b"old-password") is None
    assert accounts.verify("old", b"x") is accounts.users["old"]
    assert accounts.users["old"].tags == ()
    assert accounts.permissions("old", "/") == Permissions("a", "b", "c")
    # Live connections hold the object of before.
    assert before.limits.max_channels == 1
    load(accounts, {"users": [{"name": "old", "password": "x", "tags": ""}]})
    assert before.limits.max_channels is None


def test_permissions_written_with_a_user_are_for_new_users(accounts: Accounts) -> None:
    granted = {"/": {"configure": "1", "write": "2", "read": "3"}}
    load(accounts, {"users": [{"name": name, "tags": "", "permissions": granted} for name in ("old", "new")]})
    assert accounts.permissions("new", "/") == Permissions("1", "2", "3")
    assert accounts.permissions("old", "/") == Permissions("a", "b", "c")


def permission(**entry: object) -> dict[str, Any]:
    return {"permissions": [{"user": "old", "vhost": "/", "configure": "", "write": "", "read": "", **entry}]}


def topic(**entry: object) -> dict[str, Any]:
    stated = {"user": "old", "vhost": "/", "exchange": "x", "write": "", "read": "", **entry}
    return {"topic_permissions": [stated]}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"users": {"a": 1}}, "users: must be a list, is dict"),
        ({"users": "x"}, "users: must be a list, is str"),
        ({"users": ["x"]}, "users: every entry must be an object, not str"),
        ({"users": [{"tags": ""}]}, "users: a user must have 'name', a string, has only ['tags']"),
        ({"users": [{"name": 1}]}, "users: a user must have 'name', a string, has only ['name']"),
        (user(tags=1), "users: 'new': 'tags' must be a list of strings, or one string with commas"),
        (user(tags=[1]), "users: 'new': 'tags' must be a list of strings, or one string with commas"),
        (user(password=1), "users: 'new': 'password' must be a string"),
        (user(password_hash=["x"]), "users: 'new': 'password_hash' must be a string"),
        (
            user(password="a", password_hash="b"),
            "users: 'new': give either 'password' or 'password_hash', not both",
        ),
        (user(password_hash="!!"), "users: 'new': 'password_hash': the hash is not base64"),
        (
            user(password_hash=HASH, hashing_algorithm="foo"),
            f"users: 'new': 'password_hash': unknown hashing algorithm 'foo', known are {SHA256}, {SHA512}, {MD5}",
        ),
        (user(limits=1), "users: 'new': 'limits' must be an object"),
        (
            user(limits={"max-foo": 1}),
            "users: 'new': limit 'max-foo' must be max-connections or max-channels",
        ),
        (
            user(limits={"max-channels": "1"}),
            "users: 'new': limit 'max-channels' must be an integer, is '1'",
        ),
        (
            user(limits={"max-channels": True}),
            "users: 'new': limit 'max-channels' must be an integer, is True",
        ),
        (user(permissions=[1]), "users: 'new': 'permissions' must be an object"),
        (user(permissions={"/": ".*"}), "users: 'new': permissions in vhost '/' must be an object"),
        (
            user(permissions={"/": {"configure": ""}}),
            "users: 'new': user 'new' in vhost '/': 'write' must be a string, a regular expression",
        ),
        (
            permission(user=1),
            "permissions: an entry must have 'user', a string, has only"
            " ['configure', 'read', 'user', 'vhost', 'write']",
        ),
        (permission(vhost="nowhere"), "permissions: user 'old': there is no vhost 'nowhere'"),
        (permission(user="bob"), "permissions: user 'bob' in vhost '/': there is no user 'bob'"),
        (
            permission(read=None),
            "permissions: user 'old' in vhost '/': 'read' must be a string, a regular expression",
        ),
        (
            permission(read="["),
            "permissions: user 'old' in vhost '/': read: '[' is not a regular expression:"
            " missing terminating ] for character class",
        ),
        (
            topic(exchange=None),
            "topic_permissions: an entry must have 'exchange', a string, has only"
            " ['exchange', 'read', 'user', 'vhost', 'write']",
        ),
        (topic(vhost="nowhere"), "topic_permissions: user 'old': there is no vhost 'nowhere'"),
        (
            topic(user="bob"),
            "topic_permissions: user 'bob' in vhost '/', exchange 'x': there is no user 'bob'",
        ),
        (
            topic(write="("),
            "topic_permissions: user 'old' in vhost '/', exchange 'x': write: "
            "'(' is not a regular expression: missing )",
        ),
    ],
)
def test_what_is_wrong_is_named(accounts: Accounts, document: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionsError) as caught:
        load(accounts, document, {"/"})
    assert str(caught.value) == text
    assert accounts.permissions("old", "/") == Permissions("a", "b", "c")


def test_passwords_do_not_show_in_errors_and_reprs(accounts: Accounts) -> None:
    with pytest.raises(DefinitionsError) as caught:
        load(accounts, {"users": [{"password": "hush"}]})
    assert "hush" not in str(caught.value)
    assert HASH not in repr(User("a", HASH))


@pytest.mark.parametrize("tags", ["a, b,", ["a", " b "], ("a", "b", "")])
def test_tags_are_a_list_or_a_string_with_commas(tags: object) -> None:
    assert read_tags(tags) == ("a", "b")
