"""How a pattern that is none is reported."""

from __future__ import annotations

from leveret.policies.invalid_pattern import InvalidPattern, SearchLimitExceeded

INVALID = InvalidPattern("(é\udcff", "missing )", 4)


def test_as_text() -> None:
    assert str(INVALID) == "'(é\\udcff' is not a regular expression: missing )"
    within = InvalidPattern("(", "missing )", 1).within("configure")
    assert str(within) == "configure: '(' is not a regular expression: missing )"


def test_a_search_that_takes_too_long_names_the_pattern_and_the_text() -> None:
    assert str(SearchLimitExceeded("^(a+)+$", "aaab")) == "the pattern '^(a+)+$' takes too long on 'aaab'"


def test_as_a_term() -> None:
    assert INVALID.as_term() == '{"missing )",4}'


def test_as_json_strings_are_lists_of_bytes() -> None:
    reason = [109, 105, 115, 115, 105, 110, 103, 32, 41]
    assert INVALID.as_json() == ["invalid_regexp", [40, 195, 169, 255], [reason, 4]]
    assert INVALID.as_json("(é") == ["invalid_regexp", "(é", [reason, 4]]
