"""Where a dead letter comes from."""

from __future__ import annotations

from typing import Literal

import pytest

from leveret.policies.dead_letter import DEATH_HEADERS, Death, DeathOrigin, Table, death_origin, record_death


def dead(*deaths: Death) -> Table:
    headers: Table = (("own", ("S", b"x")),)
    for death in deaths:
        headers = record_death(headers, death, trusted=True)
    return headers


FIRST = Death("work", "rejected", 1, "in", ["key", "copy"])
LAST = Death("retry", "expired", 2, "", ["retry"])


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("first", DeathOrigin("work", "rejected", "in", ("key", "copy"))),
        ("last", DeathOrigin("retry", "expired", "", ("retry",))),
    ],
)
def test_first_and_last(which: Literal["first", "last"], expected: DeathOrigin) -> None:
    assert death_origin(dead(FIRST, LAST), which) == expected


def test_a_first_death_that_is_the_newest_again() -> None:
    headers = dead(FIRST, LAST, FIRST)
    assert death_origin(headers, "first") == death_origin(headers, "last")


def test_without_the_summary_the_oldest_entry_counts() -> None:
    headers = tuple(entry for entry in dead(FIRST, LAST) if entry[0] == "x-death")
    assert death_origin(headers, "first") == DeathOrigin("work", "rejected", "in", ("key", "copy"))


def test_a_summary_without_an_exchange_takes_that_of_the_entry() -> None:
    headers = tuple(entry for entry in dead(FIRST, LAST) if entry[0] != "x-first-death-exchange")
    assert death_origin(headers, "first") == DeathOrigin("work", "rejected", "in", ("key", "copy"))


def test_the_exchange_of_the_summary_comes_before_that_of_the_entry() -> None:
    headers = (*dead(FIRST, LAST), ("x-first-death-exchange", ("S", b"before")))
    assert death_origin(headers, "first") == DeathOrigin("work", "rejected", "before", ("key", "copy"))


def test_what_a_made_up_summary_does_not_say_is_empty() -> None:
    assert death_origin((("x-first-death-queue", ("S", b"work")),), "first") == DeathOrigin("work", "", "", ())


def test_what_a_made_up_entry_does_not_say_is_empty() -> None:
    headers: Table = (("x-death", ("A", (("F", (("queue", ("S", b"work")),)),))),)
    assert death_origin(headers, "last") == DeathOrigin("work", "", "", ())


def test_texts_that_are_not_utf_8_are_kept() -> None:
    first = Death("w\udcff", "rejected", 1, "\udcfe", ["k\udcfd"])
    assert death_origin(dead(first), "first") == DeathOrigin("w\udcff", "rejected", "\udcfe", ("k\udcfd",))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("x-death", ("S", b"made up")),),
        (("x-death", ("A", (("S", b"made up"),))),),
        (("x-death", ("A", (("F", (("queue", ("l", 5)),)),))),),
    ],
)
@pytest.mark.parametrize("which", ["first", "last"])
def test_what_is_no_dead_letter(headers: Table, which: Literal["first", "last"]) -> None:
    assert death_origin(headers, which) is None


def test_the_headers_of_dead_lettering() -> None:
    assert {name for name, _ in dead(FIRST)} - {"own"} == set(DEATH_HEADERS)
