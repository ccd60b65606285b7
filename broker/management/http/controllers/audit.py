"""Searches the audit log. RabbitMQ does not have this resource."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.json_values import replace_surrogates
from leveret.broker.management.fields import AUDIT_RECORD
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import Page, read_page
from leveret.broker.management.http.responses import bad_request, json_response
from leveret.broker.operations.audit import Search, newest
from leveret.storage.disk.files import DiskFiles

#: The page that is shown without a number.
_FIRST: Final = Page(1, 100, lambda name: True)
_TEXTS: Final = ("user", "host", "kind", "vhost", "object")


class AuditRecords(Controller):
    """The resource ``/api/audit``, for monitors."""

    @route("GET", "audit", tag="monitoring")
    async def list(self, request: web.Request) -> web.Response:
        """List a page of the records, the newest first.

        The query may have user, host, kind, vhost and object, with ``*`` for any characters, and since and until. Files
        are read in a thread, as there can be very many records; how many there are in all is not counted.
        """
        search, page = _read_search(request), read_page(request) or _FIRST
        audit = self._context.audit
        found: list[dict[str, Any]] = []
        if audit is not None:
            audit.log.write()
            place = DiskFiles(), audit.log.directory, audit.log.salt
            first = (page.number - 1) * page.size
            found = await asyncio.to_thread(lambda: [*islice(newest(*place, search), first, first + page.size + 1)])
        return json_response(
            {
                "enabled": audit is not None,
                "page": page.number,
                "page_size": page.size,
                "has_more": len(found) > page.size,
                "items": [_document(record) for record in found[: page.size]],
            }
        )


def _document(record: dict[str, Any]) -> dict[str, Any]:
    shown = {field.name: record.get(field.name) for field in AUDIT_RECORD}
    shown |= {"at": record["at"] // 1000, "broker": record.get("broker", False)}
    document: dict[str, Any] = replace_surrogates(shown)
    return document


def _read_search(request: web.Request) -> Search:
    query = request.query
    texts = {name: query[name] for name in _TEXTS if query.get(name)}
    times = {name: _read_time(name, query[name]) for name in ("since", "until") if query.get(name)}
    return Search(**texts, **times)  # type: ignore[arg-type]


def _read_time(name: str, text: str) -> int:
    """Return a time in microseconds since 1970.

    Raises:
        HTTPBadRequest: It is none.
    """
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text) * 1000
    try:
        # A plus sign in a query is a space.
        time = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise bad_request(
            f"Invalid {name}: {text}, must be a time such as 2026-05-01T12:00:00, or a number of ms since 1970"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)
