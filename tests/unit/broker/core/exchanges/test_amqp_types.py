from __future__ import annotations

import time
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.exchanges import amqp_types
from leveret.broker.core.exchanges.amqp_types import HeadersExchange, TopicExchange
from leveret.broker.core.exchanges.base import Binding
from leveret.protocol.faults import ChannelFault, ReplyCode, encode_reply_text
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.bound import bind_named, named_queue, names, table

FORMS = ("all", "any", "all-with-x", "any-with-x")


def fits(arguments: FieldTable, headers: FieldTable) -> bool:
    exchange = HeadersExchange("/", "x")
    bind_named(exchange, "q", "ignored", arguments)
    return names(exchange.destinations("other", headers)) == ["q"]


def form(name: str) -> tuple[str, str, object]:
    return ("x-match", "S", name.encode())


A1, B2 = ("a", "I", 1), ("b", "I", 2)


@pytest.mark.parametrize("name", FORMS)
def test_x_match_itself_never_counts(name: str) -> None:
    headers = table(form(name))

    assert fits(table(form(name), A1), table(A1))
    assert fits(table(form(name), A1), headers) is False


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        (("I", 1), ("T", 1), True),
        (("I", 0), ("t", False), False),
        (("S", b"true"), ("t", True), False),
        (("L", 2**64 - 1), ("l", -1), True),
        (("D", (1, 10)), ("D", (1, 10)), True),
        (("D", (1, 10)), ("D", (2, 100)), False),
        (("A", (FieldValue("I", 1),)), ("A", (FieldValue("I", 1),)), True),
        (("A", (FieldValue("I", 1),)), ("A", (FieldValue("l", 1),)), False),
        (("A", ()), ("F", ()), True),
        (("F", table(A1, B2)), ("F", table(B2, A1)), False),
        (("V", None), ("V", None), True),
        (("I", 7), ("V", None), False),
    ],
)
def test_values_compare_as_erlang_terms(
    wanted: tuple[str, object], present: tuple[str, object], expected: bool
) -> None:
    assert fits(table(("a", *wanted)), table(("a", *present))) is expected


def test_repeated_headers_compare_one_by_one() -> None:
    first, second = ("a", "I", 1), ("a", "I", 2)

    assert fits(table(first), table(first, second))
    assert not fits(table(second), table(first, second))
    assert fits(table(first, second), table(first, second))
    assert not fits(table(first, second), table(first))


@pytest.mark.parametrize(
    ("field", "explanation"),
    [
        (("V", None), "Invalid x-match field type void (value undefined); expected longstr"),
        (("x", b"all"), 'Invalid x-match field type binary (value <<"all">>); expected longstr'),
        (("F", table(A1)), 'Invalid x-match field type table (value [{<<"a">>,signedint,1}]); expected longstr'),
        (("S", b"\0\1"), "Invalid x-match field value <<0,1>>; expected all, any, all-with-x, or any-with-x"),
    ],
)
def test_other_forms_are_refused_and_leave_nothing(field: tuple[str, object], explanation: str) -> None:
    exchange = HeadersExchange("/", "x")
    binding = Binding(exchange, named_queue("q"), "", table(("x-match", *field)))

    with pytest.raises(ChannelFault) as caught:
        exchange.bind(binding)

    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    assert encode_reply_text(caught.value.explanation) == explanation.encode()
    assert not exchange.bindings
    assert names(exchange.destinations("", ())) == []
    assert not exchange.unbind(binding)


def test_the_first_x_match_counts() -> None:
    assert fits(table(form("any"), form("foo"), A1, B2), table(A1))


letters = st.sampled_from(["a", "b", "x-c"])
values = st.sampled_from(
    [FieldValue("I", 1), FieldValue("S", b"1"), FieldValue("l", 2), FieldValue("t", True), FieldValue("V", None)]
)
headers_tables = st.dictionaries(letters, values, max_size=3).map(lambda entries: tuple(entries.items()))


@given(st.sampled_from(FORMS), headers_tables, headers_tables)
def test_matches_as_defined(name: str, arguments: FieldTable, headers: FieldTable) -> None:
    present = dict(headers)
    results = [
        key in present
        and (field.kind == "V" or (field.value == present[key].value and field.kind == present[key].kind))
        for key, field in arguments
        if name.endswith("-with-x") or not key.startswith("x-")
    ]
    expected = all(results) if name.startswith("all") else any(results)

    assert fits((*arguments, ("x-match", FieldValue("S", name.encode()))), headers) is expected


@pytest.mark.parametrize("form_name", FORMS)
def test_very_many_bindings_are_looked_at_with_pauses(form_name: str) -> None:
    exchange = HeadersExchange("/", "x")
    for number in range(3000):
        arguments = table(form(form_name), ("a", "I", number % 3))
        exchange.bind(Binding(exchange, named_queue(f"q{number}"), "", arguments))
    found = list(exchange.destinations("", table(("a", "I", 1))))
    assert found.count(None) == 2
    assert names(found) == sorted(f"q{number}" for number in range(1, 3000, 3))


@given(st.lists(st.tuples(st.sampled_from(FORMS), headers_tables), max_size=8), st.data())
def test_bindings_do_not_depend_on_each_other(bindings: list[tuple[str, FieldTable]], data: st.DataObject) -> None:
    exchange = HeadersExchange("/", "x")
    bound = []
    for number, (name, arguments) in enumerate(bindings):
        whole = (*arguments, ("x-match", FieldValue("S", name.encode())))
        bound.append((bind_named(exchange, f"q{number}", str(number), whole), whole))
    if bound:
        for each in data.draw(st.lists(st.sampled_from(bound), unique_by=lambda pair: pair[0].identity)):
            assert exchange.unbind(each[0])
            bound.remove(each)
    headers = data.draw(headers_tables)

    expected = sorted(binding.destination.name for binding, arguments in bound if fits(arguments, headers))

    assert names(exchange.destinations("", headers)) == expected


def matches_naively(pattern: list[str], key: list[str]) -> bool:
    """By definition, one word of the pattern at a time."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches_naively(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches_naively(pattern[1:], key[1:])


def split_naively(text: str) -> list[str]:
    return [] if text == "" else text.split(".")


words = st.sampled_from(["", "a", "b", "*", "#", "a*", "##"])
topics = st.lists(words, max_size=5).map(".".join)


@pytest.mark.parametrize("step", [1, 5, 1000])
@given(st.sets(topics, max_size=12), st.data(), st.lists(topics, min_size=1, max_size=5))
def test_matches_as_defined_after_any_binding_and_unbinding(
    step: int, patterns: set[str], data: st.DataObject, keys: list[str]
) -> None:
    """Also where finding the destinations takes several steps."""
    exchange = TopicExchange("/", "x")
    bindings = {pattern: bind_named(exchange, pattern, pattern) for pattern in sorted(patterns)}
    gone = data.draw(st.sets(st.sampled_from(sorted(patterns)))) if patterns else set()
    for pattern in gone:
        exchange.unbind(bindings[pattern])

    for key in keys:
        expected = [p for p in patterns - gone if matches_naively(split_naively(p), split_naively(key))]
        with patch.object(amqp_types, "_STEP", step):
            found = names(exchange.destinations(key, ()))
        assert found == sorted(expected)


@given(st.lists(topics, max_size=8))
def test_nothing_is_left_of_patterns_that_are_unbound(patterns: list[str]) -> None:
    exchange = TopicExchange("/", "x")
    bindings = [bind_named(exchange, str(number), pattern) for number, pattern in enumerate(patterns)]

    for binding in bindings:
        exchange.unbind(binding)

    assert not exchange._root.children
    assert not exchange._root.bound


def test_many_hashes_do_not_make_it_slow() -> None:
    """A matcher that tries all ways in turn would not come back from this one."""
    exchange = TopicExchange("/", "x")
    bind_named(exchange, "q", ".".join(["#", "a"] * 60))
    started = time.process_time()

    assert names(exchange.destinations(".".join(["a"] * 127), ())) == ["q"]
    assert names(exchange.destinations(".".join(["a"] * 126 + ["b"]), ())) == []

    assert time.process_time() - started < 2


def test_patterns_that_do_not_match_are_not_looked_at() -> None:
    exchange = TopicExchange("/", "x")
    for number in range(5_000):
        bind_named(exchange, f"q{number}", f"a.{number}.#")
    visited = 0

    class CountingChildren(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal visited
            visited += 1
            return super().get(key, default)

    node = exchange._root.children["a"]
    node.children = CountingChildren(node.children)  # type: ignore[assignment]

    assert names(exchange.destinations("a.17.b", ())) == ["q17"]
    assert visited <= 3


def test_much_work_has_pauses() -> None:
    """One after each step of a fixed number of nodes, so that the caller can do other work in between."""
    exchange = TopicExchange("/", "x")
    for pattern in product("*#a", repeat=7):
        bind_named(exchange, "q", ".".join(pattern))
    found = list(exchange.destinations(".".join("a" * 20), ()))
    pauses = found.count(None)
    assert pauses > 20
    # All but those that have no "#" want exactly seven words.
    assert len(found) - pauses == 3**7 - 2**7
