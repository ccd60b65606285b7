"""A read-only REST catalog of the Iceberg tables in the broker's archive.

Source: https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, RequestContext
from leveret.broker.management.http.responses import json_response
from leveret.broker.operations.archived_tables import ArchivedTable, ArchivedTables, TablesUnreadableError

_PATH: Final = "/iceberg/v1"
_NAMESPACE: Final = "namespaces/{namespace}"
_TABLE: Final = f"{_NAMESPACE}/tables/{{table}}"
#: What clients may ask for, by which they know that nothing can be changed.
_ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
]
#: Kinds of errors by status.
_TYPES: Final = {400: "BadRequestException", 401: "NotAuthorizedException", 503: "ServiceUnavailableException"}


class IcebergCatalog(Controller):
    """The catalog under ``/iceberg/v1``.

    A table is listed for a user who may read every queue that it has rows of; that of the audit log for monitors.
    """

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        broker = context.broker
        self._tables = ArchivedTables(
            context.settings.archive, context.accounts, broker.vhosts.keys(), broker.timers.seconds
        )

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        handlers = {
            "config": self.config,
            "namespaces": self.namespaces,
            _NAMESPACE: self.namespace,
            f"{_NAMESPACE}/tables": self.tables,
            _TABLE: self.table,
        }
        return [web.get(f"{_PATH}/{path}", _with_errors(handler)) for path, handler in handlers.items()]

    async def config(self, request: web.Request) -> web.Response:
        """Say what the catalog can do."""
        self._access.require(request, "management")
        return json_response({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    async def namespaces(self, request: web.Request) -> web.Response:
        """List the namespace, if the user may read a table in it."""
        found = await self._readable(request)
        # There are none below it.
        is_there = bool(found) and "parent" not in request.query
        return json_response({"namespaces": [[self._tables.namespace]] if is_there else []})

    async def namespace(self, request: web.Request) -> web.Response:
        """Show the namespace."""
        await self._readable_in_namespace(request)
        return json_response({"namespace": [self._tables.namespace], "properties": {}})

    async def tables(self, request: web.Request) -> web.Response:
        """List the tables that the user may read."""
        found = await self._readable_in_namespace(request)
        namespace = [self._tables.namespace]
        return json_response({"identifiers": [{"namespace": namespace, "name": name} for name in found]})

    async def table(self, request: web.Request) -> web.Response:
        """Show a table. There are no credentials: who reads it needs access to the archive's files."""
        found = (await self._readable_in_namespace(request)).get(request.match_info["table"])
        if found is None:
            raise _error(
                404, "NoSuchTableException", f"there is no table {request.match_info['table']} that you may read"
            )
        return json_response({"metadata-location": found.location, "metadata": found.metadata, "config": {}})

    async def _readable_in_namespace(self, request: web.Request) -> dict[str, ArchivedTable]:
        found = await self._readable(request)
        name = request.match_info["namespace"]
        if not found or name != self._tables.namespace:
            raise _error(
                404, "NoSuchNamespaceException", f"there is no namespace {name} with a table that you may read"
            )
        return found

    async def _readable(self, request: web.Request) -> dict[str, ArchivedTable]:
        user = self._access.require(request, "management")
        if not self._tables.is_there:
            text = "the broker has no catalog of its own: set archive.url, and archive.iceberg to archive"
            raise _error(404, "NoSuchNamespaceException", text)
        try:
            return await self._tables.readable_by(user, has_tag(user, "monitoring"))
        except TablesUnreadableError as error:
            raise _error(503, _TYPES[503], str(error)) from None


def _error(status: int, kind: str, text: str) -> web.HTTPException:
    return _as_exception(status, {"error": {"message": text, "type": kind, "code": status}})


def _as_exception(status: int, document: dict[str, Any]) -> web.HTTPException:
    classes = {
        404: web.HTTPNotFound,
        503: web.HTTPServiceUnavailable,
        401: web.HTTPUnauthorized,
        400: web.HTTPBadRequest,
    }
    return classes[status](text=json.dumps(document), content_type="application/json")


def _with_errors(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Give refused logins the form that clients of such a catalog read."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except web.HTTPUnauthorized as error:
            said = json.loads(error.text or "{}").get("reason", "name and password are needed")
            error.text = json.dumps({"error": {"message": said, "type": _TYPES[401], "code": 401}})
            error.content_type = "application/json"
            raise

    return handle
