from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.invalid_pattern import InvalidPattern, SearchLimitExceeded
from leveret.policies.patterns import TIMEOUT_SECONDS, Pattern, report_to

OBSERVED: dict[str, Any] = json.loads((Path(__file__).parent / "pcre-3.10.8.json").read_bytes())

# Patterns that are refused although RabbitMQ accepts them; rule 3.2.11 says why.
NOT_SUPPORTED = {
    # Calls of groups, conditions and callouts.
    "(?P<n>a)(?P>n)", "(?1)(a)", "(a)(?1)", "(a(?1)?b)", "(?&n)(?<n>a)", "(?+1)(a)", "(a)(?-1)", r"\g<1>(a)",
    r"\g'1'(a)",
    "(a)?(?(1)b|c)", "(?(?=a)a|b)", "(?(DEFINE)(?<n>a))(?&n)", "(?C)a", "(?C1)a",
    # Flags.
    "(?J)", "(?J)a", "(?J:a)", "(?J)(?<n>a)(?<n>b)", "(?X)a",
    # Verbs and options.
    "(*UTF8)", "(*UTF8)^.$", "(*UTF)a", r"(*UCP)\w", "(*LF)a", "(*CR)a$", "(*ANYCRLF)a", "(*ANY)a", r"(*BSR_ANYCRLF)\R",
    "(*NO_START_OPT)a", "(*LIMIT_MATCH=5)a", "(*ACCEPT)", "(*COMMIT)a", "a(*PRUNE)b",
}  # fmt: skip


@pytest.mark.parametrize(("source", "answers"), OBSERVED["patterns"])
def test_matches_what_rabbitmq_matches(source: str, answers: str | None) -> None:
    if source in NOT_SUPPORTED or answers is None:
        with pytest.raises(InvalidPattern):
            Pattern(source)
        return
    pattern = Pattern(source)
    assert "".join(str(int(pattern.matches(each))) for each in OBSERVED["subjects"]) == answers


@pytest.mark.parametrize(
    ("source", "matching", "other"),
    [
        (r"^\Qa.\Eb.\Qc*\E$", "a.bxc*", "axbxc*"),
        # An octal number has at most three digits.
        (r"^[\1012]+$", "A2", "\x01"),
        (r"\A" * 3000 + "a", "a", "b"),
        # What looks back has one length: an anchor has none, what stands for any character has one.
        (r"(?<=(?:^b|c))a", "ba", "xba"),
        (r"(?<=(?:\N|x))a$", "ba", "a"),
    ],
)
def test_matches_one_and_not_the_other(source: str, matching: str, other: str) -> None:
    assert Pattern(source).matches(matching)
    assert not Pattern(source).matches(other)


def test_names_that_are_no_utf_8_are_matched_by_their_bytes() -> None:
    name = b"a\xff\xfe".decode("utf-8", "surrogateescape")
    assert Pattern(r"^a..$").matches(name)
    assert Pattern(r"^a\xff\xfe$").matches(name)
    assert not Pattern(r"^a.$").matches(name)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("[a", "missing terminating ] for character class"),
        ("(a", "missing )"),
        ("a)", "unmatched parentheses"),
        ("*", "nothing to repeat"),
        ("a{2,1}", "numbers out of order in {} quantifier"),
        ("(?J)a", r"(?J is not supported"),
        ("(?<=a+)b", "lookbehind assertion is not fixed length"),
        ("(?<n>a)(?<n>b)", "two named subpatterns have the same name"),
        ("[[.a.]]", "POSIX collating elements are not supported"),
        ("(((((a{99}){99}){99}){99}){99})", "regular expression is too large"),
        ("a{" + "1" * 5000 + "}", "number too big in {} quantifier"),
        ("(?#" + "x" * 70_000 + ")a", "regular expression is too large"),
        (r"\w" * 10_000, "regular expression is too large"),
        (r"\b" * 2048, "regular expression is too large"),
        (r"\B" * 2048, "regular expression is too large"),
        ("(" * 2000 + ")" * 2000, "nested too deep"),
        ("(*UTF8)", "(*VERB) is not supported"),
        ("(?#abc", "missing ) after comment"),
        ("a{70000}", "number too big in {} quantifier"),
        (r"\400", r"octal value is greater than \377 in 8-bit non-UTF-8 mode"),
        (r"\x{110000}", r"character value in \x{} or \o{} is too large"),
        (r"\p{Foo}", r"unknown property name after \P or \p"),
        (r"\k1", r"\k is not followed by a name in braces, angle brackets or quotes"),
        ("a\\", "\\ at end of pattern"),
        ("[z-a]", "range out of order in character class"),
        (r"[a-\d]", "invalid range in character class"),
        ("[[:nope:]]", "unknown POSIX class name"),
        (r"[[:\]:]]", "unknown POSIX class name"),
        ("[:alpha:]", "POSIX named classes are supported only within a class"),
        ("[.a.]", "POSIX collating elements are not supported"),
        (r"(a)\g0", "reference to non-existent subpattern"),
    ],
)
def test_a_refusal_names_the_pattern_and_the_reason(source: str, reason: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        Pattern(source)
    assert str(caught.value) == f"{source!r} is not a regular expression: {reason}"


@pytest.mark.parametrize("source", [r"(a|a|aa)+$", r"^(a+)+$", r"(?:a*)*b\Z", r"^(?:.*.*)*=$"])
def test_a_catastrophic_pattern_gives_up_and_refuses(source: str) -> None:
    pattern = Pattern(source)
    started = time.thread_time()
    assert not pattern.matches("a" * 200 + "\x00")
    assert time.thread_time() - started < 5


@given(st.text(max_size=12), st.text(max_size=20))
def test_quoted_text_matches_where_it_is_contained(wanted: str, subject: str) -> None:
    quoted = wanted.replace("\\E", "")
    assert Pattern(f"\\Q{quoted}\\E").matches(subject) == (quoted in subject)


@given(st.text(alphabet="ab(){}[]|?*+\\^$.-:,=<>!#i1Qxd~&", max_size=14), st.text(alphabet="ab1-{}", max_size=6))
def test_whatever_stands_in_a_pattern_it_is_refused_or_searched(source: str, subject: str) -> None:
    # Only InvalidPattern may be raised.
    with contextlib.suppress(InvalidPattern):
        assert Pattern(source).matches(subject) in (True, False)


CATASTROPHIC = r"(a|a|aa)+$"


def test_what_a_pattern_takes_too_long_on_is_reported_once() -> None:
    pattern = Pattern(CATASTROPHIC)
    names = ["a" * 200 + "!", "a" * 201 + "!"]
    reported: list[tuple[str, str]] = []
    report_to(lambda source, text: reported.append((source, text)))
    try:
        for name in names:
            with pytest.raises(SearchLimitExceeded):
                Pattern(CATASTROPHIC).search(name)
            assert not pattern.matches(name)
            assert pattern.matches("aaa"), "what it does not take long on is not concerned"
    finally:
        report_to(lambda source, text: None)
    assert reported == [(CATASTROPHIC, names[0])]


def test_a_pattern_that_was_too_slow_gets_less_and_less_time() -> None:
    pattern = Pattern(CATASTROPHIC)
    started = time.process_time()
    for _ in range(100):
        assert not pattern.matches("a" * 200 + "!")
    # 100 times the first limit would be a second.
    assert time.process_time() - started < 100 * TIMEOUT_SECONDS


@pytest.mark.parametrize(
    "source", ["(?#x)" * 13_000, "[[:alpha:]]" * 1_900, "(?:a)" * 10_000, r"\x{41}" * 10_000, "a{1}" * 16_000]
)
def test_a_long_pattern_is_read_in_a_time_in_proportion_to_it(source: str) -> None:
    started = time.process_time()
    with contextlib.suppress(InvalidPattern):
        Pattern(source)
    assert time.process_time() - started < 10


INVALID = InvalidPattern("(é\udcff", "missing )", 4)


def test_a_refusal_as_text_and_as_a_term() -> None:
    assert str(INVALID) == "'(é\\udcff' is not a regular expression: missing )"
    assert str(INVALID.within("configure")).startswith("configure: '(é")
    assert INVALID.as_term() == '{"missing )",4}'


def test_a_refusal_as_json_has_lists_of_bytes() -> None:
    reason = [109, 105, 115, 115, 105, 110, 103, 32, 41]
    assert INVALID.as_json() == ["invalid_regexp", [40, 195, 169, 255], [reason, 4]]
    assert INVALID.as_json("(é") == ["invalid_regexp", "(é", [reason, 4]]


def test_a_search_that_takes_too_long_names_the_pattern_and_the_text() -> None:
    assert str(SearchLimitExceeded("^(a+)+$", "aaab")) == "the pattern '^(a+)+$' takes too long on 'aaab'"
