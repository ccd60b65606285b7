"""Answers SQL statements. RabbitMQ does not have this resource."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, RequestContext, route
from leveret.broker.management.http.request_bodies import read_integer, read_object, read_text, require_keys
from leveret.broker.management.http.responses import accepts_gzip, bad_request, failure
from leveret.broker.operations.sql_statements import (
    FORMS,
    RunningStatement,
    SqlQueries,
    SqlUnavailableError,
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
        document = await read_object(request)
        require_keys(document, "statement")
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
