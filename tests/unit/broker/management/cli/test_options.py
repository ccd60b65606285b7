"""Options are found anywhere on a command line, as rabbitmqctl finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.management.cli.options import (
    COMMAND_OPTIONS,
    GENERAL_OPTIONS,
    OPTION_TYPES,
    SHORT_OPTIONS,
    InvalidOption,
    Value,
    scan,
)

POLICY = frozenset(("priority", "apply-to"))


@pytest.mark.parametrize(
    ("line", "arguments", "options"),
    [
        ("a b", ["a", "b"], {}),
        ("-p v a", ["a"], {"vhost": "v"}),
        ("a -p=v", ["a"], {"vhost": "v"}),
        ("--vhost v a", ["a"], {"vhost": "v"}),
        ("a --vhost=v", ["a"], {"vhost": "v"}),
        ("--vhost= a", ["a"], {"vhost": ""}),
        ("--vhost a=b=c", [], {"vhost": "a=b=c"}),
        ("-q a -s", ["a"], {"quiet": True, "silent": True}),
        ("-qs a", ["a"], {"quiet": True, "silent": True}),
        ("--quiet=true", [], {"quiet": True}),
        ("--quiet=false", [], {"quiet": False}),
        ("--no-quiet", [], {"quiet": False}),
        ("-? a", ["a"], {"help": True}),
        ("--priority 5 a", ["a"], {"priority": 5}),
        ("--priority -5 a", ["a"], {"priority": -5}),
        ("--priority=-5 a", ["a"], {"priority": -5}),
        ("--priority=+5", [], {"priority": 5}),
        ("a -5 -1.5", ["a", "-5", "-1.5"], {}),
        ("a -- -p v", ["a", "-p", "v"], {}),
        ("a - b", ["a", "-", "b"], {}),
        ("-p - a", ["a"], {"vhost": "-"}),
        ("-p v -p w", [], {"vhost": "w"}),
        ("-t 3", [], {"timeout": 3}),
        ("-n node@host -l a", ["a"], {"node": "node@host", "longnames": True}),
    ],
)
def test_found(line: str, arguments: list[str], options: dict[str, Value]) -> None:
    assert scan(line.split(), POLICY) == (arguments, options, [])


@pytest.mark.parametrize(
    ("line", "invalid"),
    [
        ("-p", [InvalidOption("-p", "")]),
        ("--vhost", [InvalidOption("--vhost", "")]),
        ("--vhost --quiet", [InvalidOption("--vhost", "")]),
        ("-x", [InvalidOption("-x", "")]),
        ("--nosuch", [InvalidOption("--nosuch", "")]),
        ("--nosuch=5", [InvalidOption("--nosuch", "")]),
        ("--if-empty", [InvalidOption("--if-empty", "")]),
        ("-e", [InvalidOption("-e", "")]),
        ("--priority x", [InvalidOption("--priority", "x")]),
        ("--priority 1.5", [InvalidOption("--priority", "1.5")]),
        ("--priority=", [InvalidOption("--priority", "")]),
        ("--priority +-5", [InvalidOption("--priority", "+-5")]),
        ("--timeout abc", [InvalidOption("--timeout", "abc")]),
        ("--quiet=maybe", [InvalidOption("--quiet", "maybe")]),
        ("-pv", [InvalidOption("-p", ""), InvalidOption("-v", "")]),
        ("--no-vhost", [InvalidOption("--no-vhost", "")]),
        ("--no-quiet=true", [InvalidOption("--no-quiet", "true")]),
        ("--limit 5", [InvalidOption("--limit", "")]),
    ],
)
def test_invalid(line: str, invalid: list[InvalidOption]) -> None:
    assert scan(line.split(), POLICY).invalid == invalid


def test_the_value_of_an_option_that_is_not_allowed_is_no_argument() -> None:
    assert scan(["--limit", "5", "a"], POLICY).arguments == ["a"]


def test_without_a_command_all_options_are_known() -> None:
    assert scan(["--limit", "5", "--if-empty", "a"]) == (["a"], {"limit": 5, "if-empty": True}, [])


def test_conditions_add_up() -> None:
    assert scan(["--filter", "a=1", "--filter=b=2"], frozenset(("filter",))).options == {"filter": "a=1\nb=2"}


def test_the_tables_fit() -> None:
    assert not GENERAL_OPTIONS.keys() & COMMAND_OPTIONS.keys()
    assert set(SHORT_OPTIONS.values()) <= OPTION_TYPES.keys()


@given(st.lists(st.text(max_size=6)))
def test_whatever_is_typed_is_taken_apart(argv: list[str]) -> None:
    found = scan(argv, POLICY)
    assert set(found.options) <= GENERAL_OPTIONS.keys() | POLICY
    # Nothing is made up: every argument was typed.
    assert set(found.arguments) <= set(argv)


@given(st.lists(st.text(min_size=1).filter(lambda word: not word.startswith("-"))))
def test_words_stay_as_they_are(words: list[str]) -> None:
    assert scan(words).arguments == words
    assert scan(["--", *words]).arguments == words
