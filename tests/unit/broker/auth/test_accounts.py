from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from leveret.broker.auth.accounts import Accounts, UnknownUser, User, UserExists, UserLimits
from leveret.broker.auth.backend_interface import Question, Rights
from leveret.broker.auth.passwords import hash_password
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.permissions import Permissions


@pytest.fixture
def accounts() -> Accounts:
    accounts = Accounts(("guest",))
    accounts.add_user("guest", "guest", ("administrator",))
    accounts.add_user("alice", "secret")
    return accounts


def alice(accounts: Accounts) -> User:
    return accounts.users["alice"]


# -- users --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", b"Secret"), ("alice", b""), ("alice", b"secret\0"), ("bob", b"secret"), ("bob", b""), ("", b"")],
)
def test_nobody_else_is(accounts: Accounts, name: str, password: bytes) -> None:
    assert accounts.verify(name, password) is None


@pytest.mark.parametrize("is_hashed", [True, False])
@pytest.mark.parametrize("password", [b"", b"guess"])
def test_a_user_with_an_empty_password_or_none_cannot_log_in(
    accounts: Accounts, is_hashed: bool, password: bytes
) -> None:
    accounts.put_user(User("empty", hash_password(b"") if is_hashed else ""))
    assert accounts.verify("empty", password) is None


def test_tags_count_from_the_next_login_and_limits_at_once(accounts: Accounts) -> None:
    logged_in = alice(accounts)
    accounts.put_user(replace(logged_in, tags=("impersonator",)))
    accounts.set_user_limits("alice", 3, None)
    assert logged_in.tags == ()
    assert alice(accounts).tags == ("impersonator",)
    for user in (logged_in, alice(accounts)):
        assert (user.limits.max_connections, user.limits.max_channels) == (3, None)
    accounts.set_user_limits("alice", None, 0)
    assert (logged_in.limits.max_connections, logged_in.limits.max_channels) == (None, 0)


def test_a_name_is_taken_once(accounts: Accounts) -> None:
    with pytest.raises(UserExists, match=r"^user 'alice' exists already$"):
        accounts.add_user("alice", "other")
    assert accounts.verify("alice", b"secret") is not None


def test_a_replaced_user_keeps_its_permissions(accounts: Accounts) -> None:
    accounts.set_permissions("alice", "/", ".*", ".*", ".*")
    accounts.put_user(User("alice", hash_password("new"), limits=UserLimits(1, 2)))
    assert accounts.permissions("alice", "/") == Permissions(".*", ".*", ".*")


def test_a_deleted_user_leaves_nothing_behind(accounts: Accounts) -> None:
    accounts.set_permissions("alice", "/", ".*", ".*", ".*")
    accounts.set_permissions("guest", "/", ".*", ".*", ".*")
    accounts.set_topic_permissions("alice", "/", "amq.topic", "^$", "^$")
    user = alice(accounts)
    assert accounts.allows(user, "/", "read", "queue", "q")
    accounts.delete_user("alice")
    assert not accounts.allows(user, "/", "read", "queue", "q")
    accounts.add_user("alice", "secret")
    assert accounts.permissions("alice", "/") is None
    accounts.check_topic(alice(accounts), "/", "write", "amq.topic", "any")
    assert list(accounts.all_permissions) == [("guest", "/")]
    assert not accounts.all_topic_permissions


@pytest.mark.parametrize(
    "change",
    [
        lambda accounts: accounts.set_user_limits("bob", 1, 1),
        lambda accounts: accounts.delete_user("bob"),
        lambda accounts: accounts.set_permissions("bob", "/", "", "", ""),
        lambda accounts: accounts.clear_permissions("bob", "/"),
        lambda accounts: accounts.set_topic_permissions("bob", "/", "amq.topic", "", ""),
        lambda accounts: accounts.clear_topic_permissions("bob", "/"),
    ],
)
def test_nothing_can_be_changed_of_an_unknown_user(accounts: Accounts, change: Callable[[Accounts], None]) -> None:
    before = accounts.generation
    with pytest.raises(UnknownUser, match=r"^there is no user 'bob'$"):
        change(accounts)
    assert accounts.generation == before


CHANGES: list[Callable[[Accounts], object]] = [
    lambda accounts: accounts.add_user("bob", "x"),
    lambda accounts: accounts.put_user(User("alice")),
    lambda accounts: accounts.set_user_limits("alice", 1, 1),
    lambda accounts: accounts.delete_user("alice"),
    lambda accounts: accounts.set_permissions("alice", "/", "", "", ""),
    lambda accounts: accounts.clear_permissions("alice", "/"),
    lambda accounts: accounts.set_topic_permissions("alice", "/", "amq.topic", "", ""),
    lambda accounts: accounts.clear_topic_permissions("alice", "/"),
    lambda accounts: accounts.forget_vhost("/"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_begins_a_generation(accounts: Accounts, change: Callable[[Accounts], object]) -> None:
    before = accounts.generation
    change(accounts)
    assert accounts.generation > before


def test_questions_change_nothing(accounts: Accounts) -> None:
    accounts.set_permissions("alice", "/", ".*", ".*", ".*")
    before = accounts.generation
    accounts.verify("alice", b"secret")
    accounts.allows(alice(accounts), "/", "read", "queue", "q")
    accounts.check_any(alice(accounts), "/", "queue", "q")
    accounts.permissions("alice", "/")
    accounts.check_topic(alice(accounts), "/", "write", "amq.topic", "k")
    assert accounts.generation == before


# -- permissions --------------------------------------------------------------------------------------------


def test_a_bad_pattern_changes_nothing(accounts: Accounts) -> None:
    accounts.set_permissions("alice", "/", "a", "b", "c")
    before = accounts.generation
    with pytest.raises(InvalidPattern):
        accounts.set_permissions("alice", "/", "a", "b", "(")
    with pytest.raises(InvalidPattern):
        accounts.set_topic_permissions("alice", "/", "amq.topic", "(", "")
    assert accounts.permissions("alice", "/") == Permissions("a", "b", "c")
    assert not accounts.all_topic_permissions
    assert accounts.generation == before


def test_an_answer_is_forgotten_with_its_permission(accounts: Accounts) -> None:
    user = alice(accounts)
    for _ in range(2):
        accounts.set_permissions("alice", "/", ".*", ".*", ".*")
        assert accounts.allows(user, "/", "read", "queue", "q")
        assert accounts.allows(user, "/", "read", "queue", "q")
        accounts.set_permissions("alice", "/", ".*", ".*", "^$")
        assert not accounts.allows(user, "/", "read", "queue", "q")
        assert accounts.allows(user, "/", "write", "queue", "q")
        accounts.clear_permissions("alice", "/")
        assert not accounts.allows(user, "/", "write", "queue", "q")
        accounts.set_permissions("alice", "/", ".*", ".*", ".*")
        assert accounts.allows(user, "/", "write", "queue", "q")
        accounts.forget_vhost("/")
        assert not accounts.allows(user, "/", "write", "queue", "q")


def test_the_answers_kept_are_bounded(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.broker.auth.accounts._ALLOWED_MAX", 4)
    accounts.set_permissions("alice", "/", "^x", ".*", ".*")
    kept = []
    for number in range(20):
        assert accounts.allows(alice(accounts), "/", "write", "queue", f"q{number}")
        assert not accounts.allows(alice(accounts), "/", "configure", "queue", f"q{number}")
        kept.append(len(accounts._allowed))
    assert max(kept) == 4


# -- topics -------------------------------------------------------------------------------------------------


def test_topic_permissions_are_lifted_one_by_one_or_all(accounts: Accounts) -> None:
    def restrict() -> None:
        for exchange in ("a", "b"):
            accounts.set_topic_permissions("alice", "v", exchange, "", "")
        accounts.set_topic_permissions("alice", "w", "a", "", "")
        accounts.set_topic_permissions("guest", "v", "a", "", "")

    restrict()
    accounts.clear_topic_permissions("alice", "v", "a")
    assert set(accounts.all_topic_permissions) == {("alice", "v", "b"), ("alice", "w", "a"), ("guest", "v", "a")}
    restrict()
    accounts.clear_topic_permissions("alice", "v")
    assert set(accounts.all_topic_permissions) == {("alice", "w", "a"), ("guest", "v", "a")}
    accounts.clear_topic_permissions("alice", "v")
    accounts.forget_vhost("v")
    assert set(accounts.all_topic_permissions) == {("alice", "w", "a")}


def test_who_is_authorized_elsewhere_is_asked_about_by_questions(accounts: Accounts) -> None:
    asked: list[Question] = []

    def allow(question: Question) -> bool:
        asked.append(question)
        return True

    user = User("eve", rights=cast(Rights, SimpleNamespace(allows=allow)))
    assert accounts.enters(user, "/")
    assert accounts.allows(user, "/", "write", "exchange", "")
    accounts.check_topic(user, "/", "read", "amq.topic", "a.b")
    assert asked == [
        Question("vhost", "/"),
        Question("exchange", "/", "write", "amq.default"),
        Question("topic", "/", "read", "amq.topic", "a.b"),
    ]
