"""Lists: order, pages, filters and slices."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.management.http.object_lists import View, list_response


@dataclass(frozen=True)
class ListedObject:
    """Listed object that counts how often its document was created."""

    name: str
    value: Any = None
    described: list[str] | None = None


def describe(item: ListedObject) -> dict[str, Any]:
    if item.described is not None:
        item.described.append(item.name)
    document = {"name": item.name, "deep": {"value": item.value}}
    return document if item.value is None else {**document, "value": item.value}


VIEW = View[ListedObject](
    describe,
    order=lambda item: item.name,
    keys={"name": lambda item: item.name, "cheap": lambda item: item.value},
    name=lambda item: item.name,
)


async def listed(query: str, items: list[ListedObject], paginated: bool = True) -> Any:
    request = make_mocked_request("GET", f"/api/items?{query}")
    answer = await list_response(request, items, VIEW, paginated)
    if isinstance(answer.body, bytes):
        return json.loads(answer.body)
    assert answer.body is not None
    return json.loads(answer.body.decode())


def names(documents: Any) -> list[str]:
    return [each["name"] for each in documents]


async def test_mixed_values_have_the_order_of_erlang() -> None:
    given_values = ["text", [1], {"a": 1}, True, False, 2, 1.5, None]
    items = [ListedObject(str(place), value) for place, value in enumerate(given_values)]
    documents = await listed("sort=value", items)
    # A missing value, numbers, booleans, objects, lists, strings.
    assert names(documents) == ["7", "6", "5", "4", "3", "2", "1", "0"]


@pytest.mark.parametrize("query", ["", "&sort=name", "&sort=cheap&sort_reverse=true", "&name=7"])
async def test_page_creates_only_its_own_documents(query: str) -> None:
    described: list[str] = []
    items = [ListedObject(f"{place:04}", place, described) for place in range(1000)]
    document = await listed(f"page=2&page_size=5{query}", items)
    assert len(described) == 5
    assert names(document["items"]) == described


async def test_page_sorted_by_another_column_creates_all_documents() -> None:
    described: list[str] = []
    items = [ListedObject(f"{place:04}", -place, described) for place in range(1000)]
    document = await listed("page=1&page_size=2&sort=deep.value", items)
    assert names(document["items"]) == ["0999", "0998"]
    assert len(described) == 1002


async def test_names_that_are_not_utf_8_are_replaced() -> None:
    [document] = await listed("", [ListedObject("a\udcff")])
    assert document["name"] == "a\ufffd"


async def test_slow_pattern_matches_nothing() -> None:
    items = [ListedObject("a" * 40 + "!")]
    document = await listed("page=1&use_regex=true&name=(a%2B)%2B%24", items)
    assert document["items"] == []


async def test_long_lists_are_sent_in_pieces() -> None:
    items = [ListedObject(f"{place:05}") for place in range(10_000)]
    request = make_mocked_request("GET", "/api/items")
    answer = await list_response(request, items, VIEW)
    assert not isinstance(answer.body, bytes)
    assert names(await listed("", items)) == [item.name for item in items]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=1500), st.booleans())
def test_lists_of_any_length_are_sorted(pairs: list[tuple[int, int]], backwards: bool) -> None:
    items = [ListedObject(f"{name:03}", value) for value, name in pairs]
    query = f"sort=cheap&sort_reverse={'true' if backwards else 'false'}"
    documents = asyncio.run(listed(query, items))
    expected = sorted(((item.value, item.name) for item in items), reverse=backwards)
    assert [(each["deep"]["value"], each["name"]) for each in documents] == expected


async def test_other_tasks_run_between_slices() -> None:
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
