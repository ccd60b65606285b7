"""docs/rules and the conformance tests keep step: each number in a test's name is a rule, each rule has its proof."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_RULE: Final = re.compile(r"^- \*\*([\d.]+)\*\* (.*?)(?=^- \*\*|^#|\Z)", re.MULTILINE | re.DOTALL)
_NUMBER: Final = r"\d+(?:_\d+)+"
_TEST: Final = re.compile(rf"^ *def test_({_NUMBER})(?:_(to|and)_({_NUMBER}))?_[a-z]", re.MULTILINE)
#: Numbers of rules in parentheses.
_CITED: Final = re.compile(r"\(([\d.,\s]+)\)")
#: What a rule without a conformance test says instead of one.
_ELSEWHERE: Final = re.compile(r"Tested\s+with\s+([\d.]*\d)|No\s+conformance\s+test.*?`(tests/[^`]+)`", re.DOTALL)


def _rules() -> list[tuple[str, str]]:
    pages = sorted((ROOT / "docs/rules").glob("*.md"))
    return [(rule[1], rule[2]) for page in pages for rule in _RULE.finditer(page.read_text("utf-8"))]


def _tested(rules: set[str]) -> Iterator[str]:
    """Yield the numbers in the names of conformance tests; all rules of a range."""
    for path in (ROOT / "tests/conformance").glob("test_*.py"):
        for first, link, last in _TEST.findall(path.read_text("utf-8")):
            ends = [number.replace("_", ".") for number in (first, last) if number]
            yield from ends
            if link == "to":
                low, high = (_key(end) for end in ends)
                yield from (number for number in rules if low < _key(number) < high)


def _key(number: str) -> list[int]:
    return [int(part) for part in number.split(".")]


def test_numbers_are_unique() -> None:
    numbers = [number for number, _ in _rules()]
    assert [number for number in numbers if numbers.count(number) > 1] == []


def test_each_tested_number_is_a_rule() -> None:
    rules = {number for number, _ in _rules()}
    assert sorted(set(_tested(rules)) - rules, key=_key) == []


def test_rules_that_the_page_on_compatibility_names() -> None:
    page = (ROOT / "docs/compatibility.md").read_text("utf-8")
    named = {number for cited in _CITED.findall(page) for number in re.findall(r"\d+(?:\.\d+)+", cited)}
    assert len(named) > 20
    assert sorted(named - dict(_rules()).keys(), key=_key) == []


def test_each_rule_has_its_proof() -> None:
    rules = dict(_rules())
    tested = set(_tested(set(rules)))
    missing = []
    for number, text in rules.items():
        named = _ELSEWHERE.search(text)
        elsewhere = named is not None and (named[1] in tested or (bool(named[2]) and (ROOT / named[2]).is_file()))
        if number not in tested and not elsewhere:
            missing.append(number)
    assert missing == []
