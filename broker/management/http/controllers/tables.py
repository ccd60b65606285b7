"""Tables of messages: SQL statements over them, and a read-only REST catalog of the Iceberg tables in the archive.

RabbitMQ has neither.

Source: https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml
"""

from __future__ import annotations

import json
import logging
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, RequestContext, route
from leveret.broker.management.http.request_bodies import read_integer, read_object, read_text
from leveret.broker.management.http.responses import accepts_gzip, bad_request, failure, json_response
from leveret.broker.operations.readable_tables import (
    FORMS,
    ArchivedTable,
    ArchivedTables,
    RunningStatement,
    SqlQueries,
    SqlUnavailableError,
    TablesUnreadableError,
    WrongStatementError,
)

_LOG: Final = logging.getLogger("leveret.http")
#: Rows of a result that is shown, unless the request says how many.
_ROWS: Final = 1000
_TYPES: Final = {"json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class SqlStatements(Controller):
    """The resource ``/api/sql``."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._queries = SqlQueries(context.settings, context.broker, context.accounts)

    @route("POST", "sql")
    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Run a statement, one SELECT over the rows of the queues that the user may read; see docs/sql.md.

        The body has statement, optionally rows and format: json, csv or parquet. If the client closes the connection,
        the statement ends.
        """
        user = self._access.require(request, "management")
        document = await read_object(request, "statement")
        statement, form = read_text(document, "statement"), document.get("format", "json")
        if form not in FORMS:
            raise bad_request(f"format must be one of {', '.join(FORMS)}")
        most = self._context.settings.sql.max_rows
        rows = read_integer(document.get("rows", min(_ROWS, most) if form == "json" else most))
        if not 1 <= rows <= most:
            raise bad_request(f"rows must be 1 to {most} (sql.max_rows)")
        try:
            running = await self._queries.run(user, statement, form, rows, has_tag(user, "monitoring"))
        except SqlUnavailableError as error:
            raise _unavailable(error) from None
        try:
            return await _send(request, form, running)
        finally:
            running.close()


async def _send(request: web.Request, form: str, running: RunningStatement) -> web.StreamResponse:
    """Send the result while it is being made."""

    def is_wanted() -> bool:
        return request.transport is not None and not request.transport.is_closing()

    try:
        piece = await running.read(is_wanted)
    except WrongStatementError as error:
        raise bad_request(str(error)) from None
    except SqlUnavailableError as error:
        raise _unavailable(error) from None
    headers = {"content-type": _TYPES[form], "cache-control": "no-cache"}
    if form != "json":
        headers["content-disposition"] = f'attachment; filename="result.{form}"'
    response = web.StreamResponse(headers=headers)
    if form != "parquet" and accepts_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)
    await response.prepare(request)
    try:
        while piece:
            await response.write(piece)
            piece = await running.read(is_wanted)
    except (WrongStatementError, SqlUnavailableError) as error:
        # What has been sent is not the whole result, and the client has to see that.
        if is_wanted() and request.transport is not None:
            _LOG.warning("closing the connection of an SQL statement whose result is not whole: %s", error)
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _unavailable(error: SqlUnavailableError) -> web.HTTPException:
    return failure(web.HTTPServiceUnavailable, "service_unavailable", str(error))


_NAMESPACES: Final = "/iceberg/v1/namespaces"
_TABLES: Final = f"{_NAMESPACES}/{{namespace}}/tables"
#: What clients may ask for, by which they know that nothing can be changed.
_ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
]


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

    async def _handle_for(self, tag: str, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Give refused logins the form that clients of such a catalog read."""
        try:
            return await super()._handle_for(tag, handler, request)
        except web.HTTPUnauthorized as error:
            said = json.loads(error.text or "{}").get("reason", "name and password are needed")
            error.text, error.content_type = _said(401, "NotAuthorizedException", said), "application/json"
            raise

    @route("GET", "/iceberg/v1/config", tag="management")
    async def config(self, request: web.Request) -> web.Response:
        """Say what the catalog can do."""
        return json_response({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    @route("GET", _NAMESPACES, tag="management")
    async def namespaces(self, request: web.Request) -> web.Response:
        """List the namespace, if the user may read a table in it."""
        found = await self._readable(request)
        # There are none below it.
        is_there = bool(found) and "parent" not in request.query
        return json_response({"namespaces": [[self._tables.namespace]] if is_there else []})

    @route("GET", f"{_NAMESPACES}/{{namespace}}", tag="management")
    async def namespace(self, request: web.Request) -> web.Response:
        """Show the namespace."""
        await self._readable_in_namespace(request)
        return json_response({"namespace": [self._tables.namespace], "properties": {}})

    @route("GET", _TABLES, tag="management")
    async def tables(self, request: web.Request) -> web.Response:
        """List the tables that the user may read."""
        found = await self._readable_in_namespace(request)
        namespace = [self._tables.namespace]
        return json_response({"identifiers": [{"namespace": namespace, "name": name} for name in found]})

    @route("GET", f"{_TABLES}/{{table}}", tag="management")
    async def table(self, request: web.Request) -> web.Response:
        """Show a table. There are no credentials: who reads it needs access to the archive's files."""
        found = (await self._readable_in_namespace(request)).get(request.match_info["table"])
        if found is None:
            raise _missing("Table", f"there is no table {request.match_info['table']} that you may read")
        return json_response({"metadata-location": found.location, "metadata": found.metadata, "config": {}})

    async def _readable_in_namespace(self, request: web.Request) -> dict[str, ArchivedTable]:
        found = await self._readable(request)
        name = request.match_info["namespace"]
        if not found or name != self._tables.namespace:
            raise _missing("Namespace", f"there is no namespace {name} with a table that you may read")
        return found

    async def _readable(self, request: web.Request) -> dict[str, ArchivedTable]:
        user = self._access.require(request, "management")
        if not self._tables.is_there:
            text = "the broker has no catalog of its own: set archive.url, and archive.iceberg to archive"
            raise _missing("Namespace", text)
        try:
            return await self._tables.readable_by(user, has_tag(user, "monitoring"))
        except TablesUnreadableError as error:
            raise _error(web.HTTPServiceUnavailable, "ServiceUnavailableException", str(error)) from None


def _missing(what: str, text: str) -> web.HTTPException:
    return _error(web.HTTPNotFound, f"NoSuch{what}Exception", text)


def _error(status: type[web.HTTPException], kind: str, text: str) -> web.HTTPException:
    return status(text=_said(status.status_code, kind, text), content_type="application/json")


def _said(status: int, kind: str, text: str) -> str:
    return json.dumps({"error": {"message": text, "type": kind, "code": status}})
