"""Lists: order, pages, filters, and that a long one holds nobody up."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.slices import in_slices
from leveret.broker.management.http.listing import View, list_response


@dataclass(frozen=True)
class Thing:
    """An object that is listed, and how often its document was made."""

    name: str
    value: Any = None
    described: list[str] | None = None


def describe(thing: Thing) -> dict[str, Any]:
    if thing.described is not None:
        thing.described.append(thing.name)
    document = {"name": thing.name, "deep": {"value": thing.value}}
    return document if thing.value is None else {**document, "value": thing.value}


VIEW = View[Thing](
    describe,
    order=lambda thing: thing.name,
    keys={"name": lambda thing: thing.name, "cheap": lambda thing: thing.value},
)


async def listed(query: str, things: list[Thing], paginated: bool = True) -> Any:
    request = make_mocked_request("GET", f"/api/things?{query}")
    answer = await list_response(request, things, VIEW, paginated)
    if isinstance(answer.body, bytes):
        return json.loads(answer.body)
    assert answer.body is not None
    return json.loads(answer.body.decode())


def names(documents: Any) -> list[str]:
    return [each["name"] for each in documents]


async def test_mixed_values_are_ordered_as_erlang_orders_them() -> None:
    given_values = ["text", [1], {"a": 1}, True, False, 2, 1.5, None]
    things = [Thing(str(place), value) for place, value in enumerate(given_values)]
    documents = await listed("sort=value", things)
    # A missing value, numbers, booleans, objects, lists, strings.
    assert names(documents) == ["7", "6", "5", "4", "3", "2", "1", "0"]


async def test_equal_values_stay_in_the_usual_order() -> None:
    things = [Thing(name, 1) for name in "cab"]
    assert names(await listed("sort=value", things)) == ["a", "b", "c"]
    assert names(await listed("sort=value&sort_reverse=true", things)) == ["c", "b", "a"]


async def test_nested_values() -> None:
    things = [Thing("a", 2), Thing("b", 1)]
    assert names(await listed("sort=deep.value", things)) == ["b", "a"]
    assert names(await listed("sort=deep.value.nosuch", things)) == ["a", "b"]


@pytest.mark.parametrize("query", ["", "&sort=name", "&sort=cheap&sort_reverse=true", "&name=7"])
async def test_a_page_makes_no_documents_but_its_own(query: str) -> None:
    described: list[str] = []
    things = [Thing(f"{place:04}", place, described) for place in range(1000)]
    document = await listed(f"page=2&page_size=5{query}", things)
    assert len(described) == 5
    assert names(document["items"]) == described


async def test_a_page_by_another_value_makes_them_all() -> None:
    described: list[str] = []
    things = [Thing(f"{place:04}", -place, described) for place in range(1000)]
    document = await listed("page=1&page_size=2&sort=deep.value", things)
    assert names(document["items"]) == ["0999", "0998"]
    assert len(described) == 1002


async def test_without_pages_the_parameters_do_nothing() -> None:
    assert names(await listed("page=1&page_size=1", [Thing("b"), Thing("a")], paginated=False)) == ["a", "b"]


async def test_columns_of_all_objects() -> None:
    documents = await listed("columns=deep.value,nosuch", [Thing("a", 1), Thing("b")])
    assert documents == [{"deep": {"value": 1}}, {"deep": {"value": None}}]


async def test_names_that_are_no_text_make_text_all_the_same() -> None:
    [document] = await listed("", [Thing("a\udcff")])
    assert document["name"] == "a?"


async def test_a_pattern_that_takes_too_long_matches_nothing() -> None:
    things = [Thing("a" * 40 + "!")]
    document = await listed("page=1&use_regex=true&name=(a%2B)%2B%24", things)
    assert document["items"] == []


async def test_long_lists_are_sent_in_pieces() -> None:
    things = [Thing(f"{place:05}") for place in range(10_000)]
    request = make_mocked_request("GET", "/api/things")
    answer = await list_response(request, things, VIEW)
    assert not isinstance(answer.body, bytes)
    assert names(await listed("", things)) == [thing.name for thing in things]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=1500), st.booleans())
def test_any_length_is_sorted(pairs: list[tuple[int, int]], backwards: bool) -> None:
    things = [Thing(f"{name:03}", value) for value, name in pairs]
    query = f"sort=cheap&sort_reverse={'true' if backwards else 'false'}"
    documents = asyncio.run(listed(query, things))
    expected = sorted(((thing.value, thing.name) for thing in things), reverse=backwards)
    assert [(each["deep"]["value"], each["name"]) for each in documents] == expected


async def test_others_have_their_turn_in_between() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    started = time.perf_counter()
    async for _ in in_slices(range(40)):
        while time.perf_counter() - started < 0.001:
            pass
        started = time.perf_counter()
    counting.cancel()
    assert turns >= 40 / 4 - 1


async def test_a_page_out_of_range_is_refused() -> None:
    with pytest.raises(web.HTTPBadRequest):
        await listed("page=3&page_size=1", [Thing("a")])
