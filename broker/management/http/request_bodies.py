"""Reading the bodies of requests: how long they may be, and how long they may take.

Bodies are read as they come. What a client says of their encoding (Content-Encoding, a charset) is not looked at, as
in RabbitMQ: a short body that inflates to a long one, or a slow codec, would hold everybody up.

Source: RabbitMQ 3.10.8 observed: 413 for a form above 64 kB, 400 for another body above 8 MB, 408 for a form that does
not come within 5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web
from aiohttp.multipart import BodyPartReader

from leveret.broker.management.http.errors import bad_request
from leveret.broker.management.http.switches import SETTINGS

#: A form has a name and a password.
_FORM_BYTES: Final = 64_000
_FORM_FIELDS: Final = 64
_FORM_SECONDS: Final = 5.0
#: What browsers call a form.
FORM_TYPE: Final = "application/x-www-form-urlencoded"
#: Definitions of a large broker have tens of thousands of entries.
_FILE_BYTES: Final = 64 * 1024 * 1024
#: A body of the longest size that a slow line brings; one that makes no progress is given up much earlier.
_BODY_SECONDS: Final = 60.0
_FILE_SECONDS: Final = 600.0
#: Fields of an upload beside its file.
_FIELD_BYTES: Final = 4096
_TOO_LONG: Final = "Exceeded HTTP request body size limit"


async def read_body(request: web.Request) -> bytes:
    """All of a body that is one JSON document.

    Raises:
        HTTPBadRequest: It has more bytes than ``management.http.max_body_size``.
        HTTPRequestTimeout: It does not come within a minute.
    """
    limit = request.config_dict[SETTINGS].management.http.max_body_size
    return await _read_json(request, limit, _BODY_SECONDS)


async def read_file(request: web.Request) -> bytes:
    """All of a body that is a file, up to 64 MiB.

    Raises:
        HTTPBadRequest: It is longer.
        HTTPRequestTimeout: It does not come within ten minutes.
    """
    limit = max(_FILE_BYTES, request.config_dict[SETTINGS].management.http.max_body_size)
    return await _read_json(request, limit, _FILE_SECONDS)


async def _read_json(request: web.Request, limit: int, seconds: float) -> bytes:
    body = await _read(request, limit, seconds)
    if body is None:
        raise bad_request(_TOO_LONG)
    return body


async def read_form(request: web.Request) -> Mapping[str, str]:
    """The fields of a form, which is UTF-8 whatever the client calls it.

    Raises:
        HTTPRequestEntityTooLarge: It has more than 64,000 bytes.
        HTTPBadRequest: It has more than 64 fields.
        HTTPRequestTimeout: It does not come within 5 s.
    """
    body = await _read(request, _FORM_BYTES, _FORM_SECONDS)
    if body is None:
        raise web.HTTPRequestEntityTooLarge(_FORM_BYTES, text="")
    text = body.decode("utf-8", "surrogateescape")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_FORM_FIELDS))
    except ValueError:
        raise web.HTTPBadRequest(text="") from None


async def _read(request: web.Request, limit: int, seconds: float) -> bytes | None:
    """A body; None if it is longer than the limit."""
    if (request.content_length or 0) > limit:
        return None
    body = bytearray()
    async with _within(seconds):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > limit:
                return None
    return bytes(body)


async def read_upload(request: web.Request) -> Mapping[str, bytes]:
    """The fields of a form of several parts (multipart/form-data); the one called ``file`` may have up to 64 MiB.

    Raises:
        HTTPBadRequest: It is none, or a field is too long.
        HTTPRequestTimeout: It does not come within ten minutes.
    """
    fields: dict[str, bytes] = {}
    try:
        async with _within(_FILE_SECONDS):
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader) or len(fields) >= _FORM_FIELDS:
                    raise web.HTTPBadRequest(text="")
                name = part.name or ""
                fields[name] = await _read_part(part, _FILE_BYTES if name == "file" else _FIELD_BYTES)
    except (ValueError, AssertionError, LookupError):
        # No boundary, or parts that are none.
        raise web.HTTPBadRequest(text="") from None
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
    """Give a body so many seconds.

    Raises:
        HTTPRequestTimeout: They are over; the connection is closed, since the rest may still come.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="", headers={hdrs.CONNECTION: "close"}) from None
