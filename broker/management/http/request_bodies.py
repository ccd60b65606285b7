"""Reads request bodies with limits of size and time.

Content-Encoding and charset are ignored, as in RabbitMQ: a short body that inflates to a long one, or a slow codec,
would block the event loop.

Source: RabbitMQ 3.10.8 observed: 413 for a form above 64 kB, 400 for another body above 8 MB, 408 for a form that is
not complete within 5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web
from aiohttp.multipart import BodyPartReader

from leveret.broker.core.json_values import parse_json_in_steps
from leveret.broker.core.scheduling.slices import result_in_slices
from leveret.broker.management.http.error_responses import bad_request
from leveret.broker.management.http.statistics import SETTINGS

#: Maximum size of a form, which has a name and a password.
_FORM_BYTES: Final = 64_000
_FORM_FIELDS: Final = 64
_FORM_SECONDS: Final = 5.0
#: Whether the body of a request has its own short deadline, so that ConnectionWatch need not check it.
HAS_DEADLINE: Final = web.RequestKey("has_deadline", bool)
#: Content type of forms.
FORM_TYPE: Final = "application/x-www-form-urlencoded"
#: Maximum size of definitions; a large broker has tens of thousands of entries.
_FILE_BYTES: Final = 64 * 1024 * 1024
#: Time for a body of maximum size on a slow line. A stalled body is aborted earlier, by ConnectionWatch.
_BODY_SECONDS: Final = 60.0
_FILE_SECONDS: Final = 600.0
#: Maximum size of the other fields of an upload.
_FIELD_BYTES: Final = 4096
#: What has been read, for a request that is handled again; see access.answer_questions().
_BODY: Final = web.RequestKey("body", bytes)
_FIELDS: Final = web.RequestKey("fields", Mapping[str, bytes])
_TOO_LONG: Final = "Exceeded HTTP request body size limit"


async def read_body(request: web.Request) -> bytes:
    """Read a body that is one JSON document.

    Raises:
        HTTPBadRequest: It has more bytes than ``management.http.max_body_size``.
        HTTPRequestTimeout: It is not complete within a minute.
    """
    limit = request.config_dict[SETTINGS].management.http.max_body_size
    return await _read_json(request, limit, _BODY_SECONDS)


async def read_object(request: web.Request) -> Mapping[str, Any]:
    """Return the JSON object in a request's body; an empty body is an empty object.

    Raises:
        HTTPBadRequest: The body is not a JSON object, or too long.
    """
    body = await read_body(request)
    if not body:
        return {}
    try:
        read = await result_in_slices(parse_json_in_steps(body))
    except ValueError:
        raise bad_request("not_json") from None
    if isinstance(read, str):
        raise bad_request(
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        )
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise bad_request("not_json")
    return read


async def read_file(request: web.Request) -> bytes:
    """Read a body that is a file of up to 64 MiB.

    Raises:
        HTTPBadRequest: It is longer.
        HTTPRequestTimeout: It is not complete within ten minutes.
    """
    limit = max(_FILE_BYTES, request.config_dict[SETTINGS].management.http.max_body_size)
    return await _read_json(request, limit, _FILE_SECONDS)


async def _read_json(request: web.Request, limit: int, seconds: float) -> bytes:
    body = await _read(request, limit, seconds)
    if body is None:
        raise bad_request(_TOO_LONG)
    return body


async def read_form(request: web.Request) -> Mapping[str, str]:
    """Read the fields of a form. It is always UTF-8.

    Raises:
        HTTPRequestEntityTooLarge: It has more than 64,000 bytes.
        HTTPBadRequest: It has more than 64 fields.
        HTTPRequestTimeout: It is not complete within 5 s.
    """
    request[HAS_DEADLINE] = True
    body = await _read(request, _FORM_BYTES, _FORM_SECONDS)
    if body is None:
        raise web.HTTPRequestEntityTooLarge(_FORM_BYTES, text="")
    text = body.decode("utf-8", "surrogateescape")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_FORM_FIELDS))
    except ValueError:
        raise web.HTTPBadRequest(text="") from None


async def _read(request: web.Request, limit: int, seconds: float) -> bytes | None:
    """Read a body; return None if it is longer than the limit in bytes."""
    if _BODY in request:
        return request[_BODY]
    if (request.content_length or 0) > limit:
        return None
    body = bytearray()
    async with _within(seconds):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > limit:
                return None
    request[_BODY] = bytes(body)
    return request[_BODY]


async def read_upload(request: web.Request) -> Mapping[str, bytes]:
    """Read the fields of a multipart form (multipart/form-data). The field ``file`` may have up to 64 MiB.

    Raises:
        HTTPBadRequest: It is not a multipart form, or a field is too long.
        HTTPRequestTimeout: It is not complete within ten minutes.
    """
    if _FIELDS in request:
        return request[_FIELDS]
    fields: dict[str, bytes] = {}
    try:
        async with _within(_FILE_SECONDS):
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader) or len(fields) >= _FORM_FIELDS:
                    raise web.HTTPBadRequest(text="")
                name = part.name or ""
                fields[name] = await _read_part(part, _FILE_BYTES if name == "file" else _FIELD_BYTES)
    except (ValueError, AssertionError, LookupError):
        # There is no boundary, or the parts are malformed.
        raise web.HTTPBadRequest(text="") from None
    request[_FIELDS] = fields
    return fields


async def _read_part(part: BodyPartReader, limit: int) -> bytes:
    body = bytearray()
    while chunk := await part.read_chunk():
        body += chunk
        if len(body) > limit:
            raise bad_request(_TOO_LONG)
    return bytes(body)


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Limit the time for reading a body.

    Raises:
        HTTPRequestTimeout: The time is over. The connection is closed, because the rest may still arrive.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="", headers={hdrs.CONNECTION: "close"}) from None
