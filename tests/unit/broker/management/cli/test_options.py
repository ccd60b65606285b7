"""Options are found anywhere on a command line, as rabbitmqctl finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.management.cli.options import GENERAL, KINDS, PARTICULAR, SHORT, Invalid, Value, scan

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
        ("-p", [Invalid("-p", "")]),
        ("--vhost", [Invalid("--vhost", "")]),
        ("--vhost --quiet", [Invalid("--vhost", "")]),
        ("-x", [Invalid("-x", "")]),
        ("--nosuch", [Invalid("--nosuch", "")]),
        ("--nosuch=5", [Invalid("--nosuch", "")]),
        ("--if-empty", [Invalid("--if-empty", "")]),
        ("-e", [Invalid("-e", "")]),
        ("--priority x", [Invalid("--priority", "x")]),
        ("--priority 1.5", [Invalid("--priority", "1.5")]),
        ("--priority=", [Invalid("--priority", "")]),
        ("--priority +-5", [Invalid("--priority", "+-5")]),
        ("--timeout abc", [Invalid("--timeout", "abc")]),
        ("--quiet=maybe", [Invalid("--quiet", "maybe")]),
        ("-pv", [Invalid("-p", ""), Invalid("-v", "")]),
        ("--no-vhost", [Invalid("--no-vhost", "")]),
        ("--no-quiet=true", [Invalid("--no-quiet", "true")]),
        ("--limit 5", [Invalid("--limit", "")]),
    ],
)
def test_invalid(line: str, invalid: list[Invalid]) -> None:
    assert scan(line.split(), POLICY).invalid == invalid


def test_the_value_of_an_option_that_is_not_allowed_is_no_argument() -> None:
    assert scan(["--limit", "5", "a"], POLICY).arguments == ["a"]


def test_without_a_command_all_options_are_known() -> None:
    assert scan(["--limit", "5", "--if-empty", "a"]) == (["a"], {"limit": 5, "if-empty": True}, [])


def test_conditions_add_up() -> None:
    assert scan(["--filter", "a=1", "--filter=b=2"], frozenset(("filter",))).options == {"filter": "a=1\nb=2"}


def test_the_tables_fit() -> None:
    assert not GENERAL.keys() & PARTICULAR.keys()
    assert set(SHORT.values()) <= KINDS.keys()


@given(st.lists(st.text(max_size=6)))
def test_whatever_is_typed_is_taken_apart(argv: list[str]) -> None:
    found = scan(argv, POLICY)
    assert set(found.options) <= GENERAL.keys() | POLICY
    # Nothing is made up: every argument was typed.
    assert set(found.arguments) <= set(argv)


@given(st.lists(st.text(min_size=1).filter(lambda word: not word.startswith("-"))))
def test_words_stay_as_they_are(words: list[str]) -> None:
    assert scan(words).arguments == words
    assert scan(["--", *words]).arguments == words
