"""Looks at the messages of a queue without taking them. RabbitMQ does not have this resource."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.broker.core.queues.browsing import Browsed, Browser, Place, read_place
from leveret.broker.core.queues.message_selector import Selector
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.documents.messages import browsed_document, message_text
from leveret.broker.management.http.errors import bad_request
from leveret.broker.management.http.json_fields import parse_integer
from leveret.broker.management.http.responses import LongText, encode
from leveret.broker.operations import queues
from leveret.policies.message_filter import MessageFilter, read_filter

_COUNT: Final = 100
_COUNT_MAX: Final = 1000
#: What one request reads at most, in messages and in bytes of their bodies.
_EXAMINED_MAX: Final = 100_000
_EXAMINED_BYTES: Final = 64 << 20
#: Bytes of bodies after which a page ends.
_PAGE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for.

    Args:
        start: The first place; None for the beginning.
        count: Maximum number of messages.
        wanted: Selects messages.
        truncate: Maximum length of a shown body in bytes; None for no limit.
        as_base64: Whether to encode bodies as base64 even if they are UTF-8.
    """

    start: Place | None
    count: int
    wanted: MessageFilter
    truncate: int | None
    as_base64: bool


class QueueBrowse(Controller):
    """The resource ``/api/queues/{vhost}/{name}/browse``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the path and its handler."""
        return [*resource("queues/{vhost}/{name}/browse", GET=self.browse)]

    async def browse(self, request: web.Request) -> web.Response:
        """Show a page of messages, ready and unacked, oldest first. Nothing changes.

        The query may have from, count, filter, truncate and encoding.
        """
        principal = self._access.require_connect(request)
        asked = _read(request.query)
        queue = queues.open_for_browse(principal, request.match_info["name"])
        page = _Page(queue, asked)
        await run_in_slices(page.steps())
        rest = {"next": page.next and str(page.next), "scanned": page.examined, "unreadable": page.unreadable}
        page.text.add(f"],{encode(rest)[1:]}")
        return page.text.response()


class _Page:
    """One page of messages.

    Args:
        queue: The queue.
        asked: What is asked for.

    Attributes:
        text: The response as JSON, up to the last message.
        next: The place to continue from; None at the end.
        examined: Number of messages that were read.
    """

    def __init__(self, queue: Queue, asked: _Request) -> None:
        self._timers = queue.host.timers
        self._asked = asked
        self._browser = Browser(queue, asked.start)
        self._selector = Selector(asked.wanted)
        self.text = LongText()
        self.text.add('{"messages":[')
        self._shown = 0
        self.next: Place | None = None
        self.examined = 0
        self._examined_bytes = self._shown_bytes = 0
        #: Messages that the filter could not check, by reason.
        self._unchecked: Counter[str] = Counter()

    @property
    def unreadable(self) -> str | None:
        """Why messages are left out that the system, or the filter, cannot read; None if there are none."""
        failure = self._browser.failure
        reasons = [] if failure is None else [failure.strerror or str(failure)]
        reasons += [f"{count} not checked: {problem}" for problem, count in self._unchecked.items()]
        return "; ".join(reasons) or None

    def steps(self) -> Iterator[None]:
        """Collect the messages, in steps."""
        for step in self._browser.steps():
            for at, found in enumerate(step):
                yield from self._examine(found)
                if self._is_full():
                    self.next = step[at + 1].place if at + 1 < len(step) else self._browser.place
                    return
                yield
            yield
        self.next = self._browser.place

    def _examine(self, found: Browsed) -> Iterator[None]:
        asked, now = self._asked, self._timers.now()
        size = len(found.message.body)
        self.examined += 1
        self._examined_bytes += size
        wanted = yield from self._selector.steps(found.message, found.arrived, now)
        if self._selector.problem:
            self._unchecked[self._selector.problem] += 1
        if wanted:
            self.text.add("," if self._shown else "")
            self._shown += 1
            document, body = browsed_document(found, now), found.message.body
            yield from self.text.steps(message_text(document, body, asked.as_base64, asked.truncate))
            self._shown_bytes += size if asked.truncate is None else min(size, asked.truncate)

    def _is_full(self) -> bool:
        return (
            self._shown >= self._asked.count
            or self._shown_bytes >= _PAGE_BYTES
            or self.examined >= _EXAMINED_MAX
            or self._examined_bytes >= _EXAMINED_BYTES
        )


def _read(query: Mapping[str, str]) -> _Request:
    """Read the query.

    Raises:
        HTTPBadRequest: A parameter is invalid.
    """
    encoding = query.get("encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    count = _number(query, "count", 1, _COUNT_MAX)
    try:
        start = read_place(query["from"]) if query.get("from") else None
        wanted = read_filter(_filter_document(query.get("filter", "")))
    except ValueError as error:
        raise bad_request(str(error)) from None
    return _Request(
        start, _COUNT if count is None else count, wanted, _number(query, "truncate", 0), encoding == "base64"
    )


def _filter_document(text: str) -> object:
    """Return the filter of a query: JSON, or conditions as text."""
    if not text.strip():
        return None
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # One condition per line may be JSON, too.
        return text


def _number(query: Mapping[str, str], name: str, least: int, most: int = 1 << 62) -> int | None:
    if name not in query:
        return None
    try:
        number = parse_integer(query[name])
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        bounds = f"{least} to {most}" if most < 1 << 62 else f"{least} or more"
        raise bad_request(f"{name} must be {bounds}, is {query[name]}")
    return number
