from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from leveret.broker.auth.ldap.queries import (
    OF_RESOURCES,
    OF_TOPICS,
    InvalidQuery,
    QueryFailed,
    deciding_part,
    dn_template,
    escape_dn,
    read_query,
    read_tag_queries,
    regexp_template,
    text_template,
)

ANN = {
    "username": "ann", "user_dn": "uid=ann,dc=x", "vhost": "shop", "resource": "queue", "name": "ann-q",
    "permission": "read",
}  # fmt: skip


class Entries:
    """A directory of these entries."""

    def __init__(self, **attributes: Mapping[str, list[str]]) -> None:
        self.entries = attributes
        self.asked: list[str] = []

    def exists(self, dn: str) -> bool:
        return dn in self.entries

    def has_value(self, dn: str, attribute: str, value: str) -> bool:
        return value in self.values(dn, attribute)

    def values(self, dn: str, attribute: str) -> list[str]:
        self.asked.append(dn)
        if dn not in self.entries:
            raise QueryFailed(f"{dn}: noSuchObject")
        return self.entries[dn].get(attribute, [])

    def is_in_nested(self, dn: str, group: str, attribute: str, is_subtree: bool) -> bool:
        self.asked.append(f"{dn} in {group} by {attribute}, {is_subtree}")
        return True


ENTRIES = Entries(
    **{
        "cn=shop": {"member": ["uid=ann,dc=x"], "owner": ["uid=bob,dc=x"]},
        "uid=ann,dc=x": {"dept": ["sales"], "may": ["^ann-", "^all-"], "names": ["q", "ann-q"]},
    }
)
#: Queries in YAML's form and in Erlang's, and what they say of Ann.
BOTH: list[tuple[Any, str, bool]] = [
    (True, "{constant, true}", True),
    ({"constant": False}, "{constant, false}", False),
    ({"exists": "cn=${vhost}"}, '{exists, "cn=${vhost}"}', True),
    ({"exists": "cn=other"}, '{exists, "cn=other"}', False),
    ({"in_group": "cn=shop"}, '{in_group, "cn=shop"}', True),
    ({"in_group": ["cn=shop", "owner"]}, '{in_group, "cn=shop", "owner"}', False),
    ({"in_group_nested": ["cn=x", "member", "one_level"]}, '{in_group_nested, "cn=x", "member", one_level}', True),
    ({"not": {"exists": "cn=shop"}}, "{'not', {exists, \"cn=shop\"}}", False),
    ({"and": [True, {"exists": "cn=shop"}]}, "{'and', [{constant, true}, {exists, \"cn=shop\"}]}", True),
    # Failures count as false, but for the last of `or`.
    ({"and": [True, {"in_group": "cn=no"}]}, "{'and', [{constant, true}, {in_group, \"cn=no\"}]}", False),
    ({"or": [{"in_group": "cn=no"}, True]}, "{'or', [{in_group, \"cn=no\"}, {constant, true}]}", True),
    ({"or": [{"in_group": "cn=no"}, False]}, "{'or', [{in_group, \"cn=no\"}, {constant, false}]}", False),
    ({"or": []}, "{'or', []}", False),
    ({"match": ["${name}", "^${username}-"]}, '{match, {string, "${name}"}, {string, "^${username}-"}}', True),
    ({"match": ["x", "y"]}, '{match, "x", "y"}', False),
    (
        {"match": ["${name}", {"attribute": ["${user_dn}", "may"]}]},
        '{match, {string, "${name}"}, {attribute, "${user_dn}", "may"}}',
        True,
    ),
    (
        {"equals": [{"attribute": ["${user_dn}", "dept"]}, "sales"]},
        '{equals, {attribute, "${user_dn}", "dept"}, "sales"}',
        True,
    ),
    (
        {"equals": ["${name}", {"attribute": ["${user_dn}", "names"]}]},
        '{equals, "${name}", {attribute, "${user_dn}", "names"}}',
        True,
    ),
    (
        {"equals": ["x", {"attribute": ["${user_dn}", "none"]}]},
        '{equals, "x", {attribute, "${user_dn}", "none"}}',
        False,
    ),
    (
        {"for": {"permission": {"read": True, "write": False}}},
        "{for, [{permission, read, {constant, true}}, {permission, write, {constant, false}}]}",
        True,
    ),
    (
        {"for": [["resource", "exchange", True], ["resource", "queue", False]]},
        "{for, [{resource, exchange, {constant, true}}, {resource, queue, {constant, false}}]}",
        False,
    ),
]


@pytest.mark.parametrize(("written", "erlang", "expected"), BOTH, ids=[erlang for _, erlang, _ in BOTH])
def test_both_forms_say_the_same(written: Any, erlang: str, expected: bool) -> None:
    for form in (written, erlang):
        assert read_query(form, OF_RESOURCES).holds(ANN, ENTRIES) is expected


@pytest.mark.parametrize(
    "query",
    [
        '{in_group, "cn=no"}',
        "{'not', {in_group, \"cn=no\"}}",
        "{'or', [{constant, false}, {in_group, \"cn=no\"}]}",
        "{for, [{permission, write, {constant, true}}]}",
        "{for, []}",
        '{match, "x", {attribute, "uid=bad", "re"}}',
    ],
)
def test_what_has_no_answer(query: str) -> None:
    entries = Entries(**{"uid=bad": {"re": ["("]}})
    with pytest.raises(QueryFailed):
        read_query(query, OF_RESOURCES).holds(ANN, entries)


def test_nothing_is_asked_that_does_not_decide() -> None:
    entries = Entries()
    read_query({"and": [False, {"in_group": "cn=shop"}]}, OF_RESOURCES).holds(ANN, entries)
    read_query({"or": [True, {"in_group": "cn=shop"}]}, OF_RESOURCES).holds(ANN, entries)
    assert entries.asked == []


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("nonsense", "'nonsense' is not a query"),
        ({"in_grup": "cn=x"}, "{in_grup, cn=x} is not a query"),
        ({"in_group": "cn=x", "exists": "cn=y"}, "a query is a mapping with one key, not with ['exists', 'in_group']"),
        ({"in_group": "cn=${routing_key}"}, "${routing_key} in 'cn=${routing_key}' is not known here; there are "),
        ({"and": True}, "{and, True} is not a query"),
        ({"for": {"permission": True}}, "for: permission: give a mapping of values to queries"),
        ({"for": {"key": {"x": True}}}, "for: 'key' is not known here; there are "),
        ({"for": [["permission", True]]}, "for: ['permission', True] is not a variable, a value and a query"),
        ({"match": ["x", "("]}, "'(' is not a regular expression"),
        ({"match": "x"}, "is not a query"),
        ({"equals": ["x", {"exists": "cn=x"}]}, "is not a text, nor {attribute: [DN, NAME]}"),
        ({"in_group_nested": ["cn=x", "member", "deep"]}, "is not a query"),
        ("{in_group, cn=x}", "is not an Erlang term: behind '{in_group, cn' "),
        (1, "1 is not a query"),
    ],
)
def test_what_is_no_query(written: object, text: str) -> None:
    with pytest.raises(InvalidQuery) as wrong:
        read_query(written, OF_RESOURCES)
    assert text in str(wrong.value)


def test_topics_have_keys() -> None:
    query = read_query({"equals": ["${routing_key}", "${vhost}.x"]}, OF_TOPICS)
    assert query.holds({"routing_key": "v.x", "vhost": "v"}, ENTRIES)


@pytest.mark.parametrize(
    "written",
    [
        {"administrator": {"in_group": "cn=shop"}, "management": True},
        '[{administrator, {in_group, "cn=shop"}}, {management, {constant, true}}]',
        '{"administrator": {"in_group": "cn=shop"}, "management": true}',
    ],
)
def test_tags(written: object) -> None:
    queries = read_tag_queries(written)
    assert [*queries] == ["administrator", "management"]
    assert all(query.holds(ANN, ENTRIES) for query in queries.values())


@pytest.mark.parametrize("written", [True, [True], "[{a, b, c}]", {"administrator": {"in_group": "cn=${vhost}"}}])
def test_what_are_no_tags(written: object) -> None:
    with pytest.raises(InvalidQuery):
        read_tag_queries(written)


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("ann", "ann"),
        ("ann,ou=admins", r"ann\,ou\=admins"),
        ('a+b"c\\d<e>f;g#h', r"a\+b\"c\\d\<e\>f\;g\#h"),
        (" a ", r"\ a\ "),
        (" ", r"\ "),
        ("a\0b", r"a\00b"),
        ("Łódź", "Łódź"),
        ("*)(uid=*", r"*)(uid\=*"),
    ],
)
def test_values_do_not_leave_their_place_in_a_dn(value: str, escaped: str) -> None:
    assert escape_dn(value) == escaped
    assert dn_template("uid=${username},dc=x", ["username"]).fill({"username": value}) == f"uid={escaped},dc=x"


def test_what_is_no_part_of_a_dn_stays_as_it_is() -> None:
    name = "cn=a b,dc=x"
    assert dn_template("${username}", ["username"]).fill({"username": name}) == name
    assert dn_template("${username}@example.com", ["username"]).fill({"username": "a+b"}) == "a+b@example.com"
    assert dn_template("cn=x,${user_dn}", ["user_dn"]).fill({"user_dn": name}) == f"cn=x,{name}"
    assert text_template("${name}!", ["name"]).fill({"name": "a,b"}) == "a,b!"
    assert regexp_template("^${name}", ["name"]).fill({"name": "a.b"}) == r"^a\.b"


def test_a_name_is_no_pattern() -> None:
    query = read_query({"match": ["${name}", "^${username}-"]}, OF_RESOURCES)
    assert not query.holds({**ANN, "username": ".*"}, ENTRIES)
    assert query.holds({**ANN, "username": ".*", "name": ".*-q"}, ENTRIES)


def test_a_variable_without_value_fails() -> None:
    with pytest.raises(QueryFailed, match="for this user"):
        read_query({"exists": "cn=${ad_user}"}, OF_RESOURCES).holds(ANN, ENTRIES)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        (False, "constant is false"),
        ({"in_group": "cn=${vhost}"}, "in_group 'cn=shop' (member) is true"),
        ({"and": [True, {"exists": "cn=x"}, False]}, "and: exists 'cn=x' is false"),
        ({"and": [True, {"in_group": "cn=no"}]}, "and: cn=no: noSuchObject"),
        ({"and": [True, True]}, "and: all parts are true"),
        ({"or": [{"in_group": "cn=no"}, {"not": {"exists": "cn=x"}}]}, "or: not: exists 'cn=x' is false"),
        ({"or": [False, {"match": ["${name}", "^x"]}]}, "or: no part is true"),
        ({"or": [False, {"in_group": "cn=no"}]}, "or: cn=no: noSuchObject"),
        ({"match": ["${name}", "^${username}-"]}, "match 'ann-q', '^ann-' is true"),
        (
            {"for": {"permission": {"read": {"equals": [{"attribute": ["${user_dn}", "dept"]}, "x"]}}}},
            "for permission read: equals attribute dept of 'uid=ann,dc=x', 'x' is false",
        ),
        ({"in_group_nested": "cn=x"}, "in_group_nested 'cn=x' (member) is true"),
    ],
)
def test_which_part_decides(query: Any, part: str) -> None:
    assert deciding_part(read_query(query, OF_RESOURCES), ANN, ENTRIES) == part


def test_what_has_no_answer_is_not_explained() -> None:
    with pytest.raises(QueryFailed, match="noSuchObject"):
        deciding_part(read_query({"in_group": "cn=no"}, OF_RESOURCES), ANN, ENTRIES)
