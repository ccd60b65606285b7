from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.permissions import Kind, Permissions, TopicPermissions


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        ("^orders$", "orders", True),
        ("^orders", "all-orders", False),
        # The default exchange has a name here.
        ("^$", "", False),
        ("^amq\\.default$", "", True),
        ("^(?!amq\\.)", "", False),
    ],
)
@pytest.mark.parametrize("kind", ["configure", "write", "read"])
def test_a_pattern_counts_for_its_kind_only(kind: Kind, pattern: str, name: str, allowed: bool) -> None:
    permissions = Permissions(**{"configure": "^$", "write": "^$", "read": "^$", kind: pattern})
    assert permissions.allow(kind, name) is allowed
    others: set[Kind] = {"configure", "write", "read"}
    assert not any(permissions.allow(other, name) for other in others - {kind})


@given(st.text(min_size=1))
def test_the_empty_pattern_allows_no_name_at_all(name: str) -> None:
    assert not Permissions("", "", "").allow("write", name.replace("\n", "-"))


def test_a_bad_pattern_is_refused_by_the_name_of_its_permission() -> None:
    with pytest.raises(
        InvalidPattern, match=r"^write: '\[' is not a regular expression: missing terminating \] for character class$"
    ):
        Permissions(".*", "[", "(")


@pytest.mark.parametrize(
    ("pattern", "key", "allowed"),
    [
        ("^{username}\\.", "alice.x", True),
        ("^{username}\\.", "bob.x", False),
        ("^{vhost}-{username}-{username}$", "v1-alice-alice", True),
        ("{client_id}", "{client_id}", True),
        ("", "", True),
        ("", "x", False),
        ("^a\\.", "a.b", True),
    ],
)
def test_topic_patterns_know_user_and_vhost(pattern: str, key: str, allowed: bool) -> None:
    assert TopicPermissions(pattern, "^$", "alice", "v1").allow("write", key) is allowed
    assert TopicPermissions("^$", pattern, "alice", "v1").allow("read", key) is allowed


def test_a_user_name_goes_into_a_topic_pattern_as_it_is() -> None:
    permissions = TopicPermissions("^{username}$", "", "a.b", "/")
    assert permissions.allow("write", "a.b")
    assert permissions.allow("write", "aXb")


def test_bad_topic_patterns_are_refused_before_and_after_the_replacement() -> None:
    with pytest.raises(InvalidPattern, match=r"^read: "):
        TopicPermissions("", "(", "alice", "/")
    with pytest.raises(InvalidPattern, match=r"^write: "):
        TopicPermissions("^{username}", "", "(", "/")
