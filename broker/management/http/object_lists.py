"""Lists of objects: filter, sort, page, columns. Built in slices; other connections are served in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aiohttp import web

from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.management.http.request_bodies import compile_in_thread, parse_integer
from leveret.broker.management.http.responses import LongText, bad_request, encode, failure, select, wanted_columns
from leveret.policies.invalid_pattern import InvalidPattern, SearchLimitExceeded
from leveret.policies.patterns import Pattern

Item = TypeVar("Item")
#: Sort key, default order and object. The default order decides among equal sort keys.
_Keyed: TypeAlias = tuple[tuple[int, Any], Any, Item]
_key: Final = itemgetter(0, 1)
_UNRANKED: Final = (0, 0)

_PAGE_SIZE: Final = 100
_PAGE_SIZE_MAX: Final = 500
#: Objects that are sorted in one step.
_SORT_STEP: Final = 500
#: Erlang's order of values of different types.
_RANKS: Final[Mapping[type, int]] = {int: 1, float: 1, bool: 2, type(None): 2, dict: 3, list: 4, tuple: 4, str: 5}


@dataclass(frozen=True)
class View(Generic[Item]):
    """Description of how the objects of one kind are listed.

    Args:
        describe: Returns the document of an object.
        order: Returns the default sort key, also used among equal objects.
        keys: Columns that can be computed without the document, by name. Sorting by other columns creates the
            documents of all objects.
        name: Returns the text that the filter ``name`` searches; required for lists with pages.
        alias: Returns a further text that it searches; "" for none.
    """

    describe: Callable[[Item], Mapping[str, Any]]
    order: Callable[[Item], Any]
    keys: Mapping[str, Callable[[Item], Any]] = field(default_factory=dict)
    name: Callable[[Item], str] | None = None
    alias: Callable[[Item], str] | None = None

    def matches_filter(self, item: Item, matches: Callable[[str], object]) -> bool:
        """Check whether an object passes the filter."""
        assert self.name is not None, "a list with pages needs View.name"
        return bool(matches(self.name(item)) or (self.alias is not None and matches(self.alias(item))))


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a list that a request selects.

    Args:
        size: Objects per page, 1..500.
        matches: Checks whether a name passes the filter.
    """

    number: int
    size: int
    matches: Callable[[str], object]


async def list_response(
    request: web.Request,
    items: Iterable[Item],
    view: View[Item],
    paginated: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> web.Response:
    """Return a response with a list.

    Args:
        request: Its query has sort, sort_reverse, columns; page, page_size, name, use_regex.
        items: All objects that the user may see.
        paginated: Whether the request may select a page.
        extra: Further fields of a page.
    Raises:
        HTTPBadRequest: The page does not exist or its parameters are invalid.
    """
    if paginated and request.query.get("use_regex") == "true":
        await compile_in_thread(_caseless(request.query.get("name", "")))
    page = read_page(request) if paginated else None
    listed = [item async for item in in_slices(items)]
    total = len(listed)
    if page is not None:
        listed = [item async for item in in_slices(listed) if view.matches_filter(item, page.matches)]
    ordered = await _sorted(request, listed, view)
    if page is None:
        return await _encode_all(request, ordered, view, "[", "]")
    start = (page.number - 1) * page.size
    if start > len(ordered):
        raise _out_of_range(page, len(ordered))
    shown = ordered[start : start + page.size]
    numbers = {
        "filtered_count": len(ordered),
        "item_count": len(shown),
        "page": page.number,
        "page_count": -(-len(ordered) // page.size),
        "page_size": page.size,
        "total_count": total,
        **(extra or {}),
    }
    return await _encode_all(request, shown, view, f'{encode(numbers)[:-1]},"items":[', "]}")


def read_page(request: web.Request) -> Page | None:
    """Return the page that a request selects; None without ``page``.

    Raises:
        HTTPBadRequest: A number is invalid or out of range, or the name is not a regular expression.
    """
    query = request.query
    if "page" not in query:
        return None
    try:
        number = parse_integer(query["page"])
        size = parse_integer(query["page_size"]) if "page_size" in query else None
        matches = _name_filter(query.get("name", ""), query.get("use_regex") == "true")
    except (ValueError, InvalidPattern):
        raise bad_request("Pagination parameters are invalid") from None
    if number < 1 or (size is not None and not 1 <= size <= _PAGE_SIZE_MAX):
        shown = "undefined" if size is None else size
        reason = f"Invalid pagination parameters: page number {number}, page size {shown}"
        raise failure(web.HTTPBadRequest, "invalid_pagination_parameters", reason)
    return Page(number, size or _PAGE_SIZE, matches)


def _name_filter(name: str, is_regex: bool) -> Callable[[str], object]:
    if is_regex:
        return partial(_search, Pattern(_caseless(name)))
    wanted = name.lower()
    return lambda candidate: wanted in candidate.lower()


def _caseless(source: str) -> str:
    return f"(?i){source}"


def _search(pattern: Pattern, name: str) -> bool:
    """Check whether a pattern matches a name."""
    try:
        return pattern.search(name)
    except SearchLimitExceeded as exceeded:
        raise bad_request(f"Pagination parameters are invalid: {exceeded}") from None


def _out_of_range(page: Page, length: int) -> web.HTTPException:
    reason = f"Page out of range, page: {page.number} page size: {page.size}, len: {length}"
    return failure(web.HTTPBadRequest, "page_out_of_range", reason)


async def _sorted(request: web.Request, items: list[Item], view: View[Item]) -> Sequence[Item]:
    column = request.query.get("sort", "")
    backwards = request.query.get("sort_reverse") == "true"
    order = view.order
    if column:
        value = view.keys.get(column)
        if value is None:
            path = column.split(".")
            keyed = [
                (_ranked(_dotted(view.describe(item), path)), order(item), item) async for item in in_slices(items)
            ]
        else:
            keyed = [(_ranked(value(item)), order(item), item) async for item in in_slices(items)]
    else:
        keyed = [(_UNRANKED, order(item), item) async for item in in_slices(items)]
    return [each[2] async for each in in_slices(await _merge_sort(keyed, backwards))]


async def _merge_sort(keyed: list[_Keyed[Item]], backwards: bool) -> Iterable[_Keyed[Item]]:
    """Sort by key and default order: sort pieces one by one, and merge them while the result is read."""
    if len(keyed) <= _SORT_STEP:
        keyed.sort(key=_key, reverse=backwards)
        return keyed
    pieces = [keyed[start : start + _SORT_STEP] for start in range(0, len(keyed), _SORT_STEP)]
    async for piece in in_slices(pieces):
        piece.sort(key=_key, reverse=backwards)
    return merge(*pieces, key=_key, reverse=backwards)


def _ranked(value: Any) -> tuple[int, Any]:
    """Return a sort key for values of all types; a missing value (...) is first."""
    rank = _RANKS.get(type(value), 0)
    if rank == 0:
        return 0, 0
    if rank in (2, 3, 4):
        return rank, str(value)
    return rank, value


def _dotted(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(document, Mapping) or key not in document:
            return ...
        document = document[key]
    return document


async def _encode_all(
    request: web.Request, items: Sequence[Item], view: View[Item], before: str, after: str
) -> web.Response:
    """Return the response with the documents of objects, separated by commas."""
    columns = wanted_columns(request)
    text = LongText()
    text.add(before)
    shown = view.describe if columns is None else lambda item: select(view.describe(item), columns)
    await text.add_all(items, shown)
    text.add(after)
    return text.response()
