"""Reads request bodies with limits of size and time, and their fields: required keys, and values of RabbitMQ's types.

Content-Encoding and charset are ignored, as in RabbitMQ: a short body that inflates to a long one, or a slow codec,
would block the event loop. What is wrong raises HTTPBadRequest with RabbitMQ's text.

Source: RabbitMQ 3.10.8 observed: 413 for a form above 64 kB, 400 for another body above 8 MB, 408 for a form that is
not complete within 5 s.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web
from aiohttp.multipart import BodyPartReader

from leveret.broker.config.options import Settings
from leveret.broker.core.json_values import check_nesting, parse_json_in_steps, table_from_json
from leveret.broker.core.scheduling.slices import result_in_slices
from leveret.broker.management.http.responses import bad_request, encode
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable

#: Key of the configuration in the application.
SETTINGS: Final = web.AppKey("settings", Settings)
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


async def read_object(request: web.Request, *required: str) -> Mapping[str, Any]:
    """Return the JSON object in a request's body; an empty body is an empty object.

    Args:
        required: Keys that it must have.
    Raises:
        HTTPBadRequest: The body is not a JSON object, it lacks a key, or has more bytes than
            ``management.http.max_body_size``.
        HTTPRequestTimeout: It is not complete within a minute.
    """
    limit = request.config_dict[SETTINGS].management.http.max_body_size
    body = await _read_json(request, limit, _BODY_SECONDS)
    try:
        read = await result_in_slices(parse_json_in_steps(body)) if body else None
    except ValueError:
        raise bad_request("not_json") from None
    if isinstance(read, str):
        raise bad_request(
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        )
    document = {} if read is None else read
    if not isinstance(document, dict):
        raise bad_request("not_json")
    require_keys(document, *required)
    return document


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


#: Longer lists are printed on several lines by Erlang.
_LINE_WIDTH: Final = 80
_DIGITS_MAX: Final = 1000
_NEXT_LINE: Final = "\n "
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WHITE_SPACE: Final = str.maketrans("", "", " \t\r\n")
#: Patterns up to this many characters are compiled in one or two milliseconds.
_SHORT: Final = 200


class IntegerTooLong(ValueError):
    """Raised for an integer with too many digits."""


def require_keys(document: Mapping[str, Any], *keys: str) -> None:
    """Refuse a body without the required keys. The text names all that are missing, in the order of the arguments."""
    lacking = [f"{{key_missing,{key}}}" for key in keys if key not in document]
    if lacking:
        text = ",".join(lacking)
        raise bad_request(f"[{text if len(text) + 2 <= _LINE_WIDTH else text.replace(',{', ',' + _NEXT_LINE + '{')}]")


def read_flag(document: Mapping[str, Any], key: str) -> bool:
    """Return a boolean of a body. It may be a string; a missing one is false."""
    value = document.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def parse_integer(text: str) -> int:
    """Return an integer in Erlang's syntax: sign and digits, no white space, no underscores.

    Raises:
        IntegerTooLong: It has more than 1000 digits, which take long to read.
        ValueError: It is not an integer.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an integer")
    if len(text) > _DIGITS_MAX:
        raise IntegerTooLong(f"an integer of {len(text)} digits")
    return int(text)


def read_integer(value: Any) -> int:
    """Return an integer, which may be a string."""
    if isinstance(value, str):
        try:
            return parse_integer(value)
        except ValueError:
            raise bad_request(["not_integer", value]) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(["not_integer", value])
    return int(value)


def read_text(document: Mapping[str, Any], key: str) -> str:
    """Return a required string of a body."""
    value = document.get(key)
    if not isinstance(value, str):
        raise bad_request(["not_string", key])
    return value


def read_as_text(value: Any) -> str:
    """Return a scalar as a string, where RabbitMQ accepts any scalar: null is ``null``, 1 is ``1``."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping):
        raise bad_request(["not_string", value])
    return encode(value)


def read_base64(text: Any) -> bytes:
    """Decode base64; white space is ignored."""
    try:
        return base64.b64decode(text.translate(_WHITE_SPACE), validate=True)
    except (AttributeError, ValueError):
        raise bad_request(["not_base64", text]) from None


def read_arguments(document: Mapping[str, Any]) -> FieldTable:
    """Return the field ``arguments``. An empty list is an empty table, because some clients send one."""
    return read_table(document.get("arguments") or {}, "arguments")


def read_table(value: Any, what: str) -> FieldTable:
    """Return a JSON object as a field table."""
    if not isinstance(value, Mapping):
        raise bad_request(f"{what} must be an object")
    check_depth(value)
    _check_values(value)
    return table_from_json(value)


def check_depth(value: Any) -> None:
    """Refuse a value that is nested deeper than field tables may be."""
    try:
        check_nesting(value)
    except ValueError as deep:
        raise bad_request(str(deep)) from None


def _check_values(value: Any) -> None:
    if value is None:
        raise bad_request("null_not_allowed")
    if isinstance(value, int) and not -INT64_END <= value < INT64_END:
        raise bad_request(f"the integer {value} is out of range")
    if isinstance(value, Mapping):
        for key, element in value.items():
            if len(key.encode("utf-8", "surrogateescape")) > SHORTSTR_MAX:
                raise bad_request(f"the key '{key[:32]}…' is too long")
            _check_values(element)
    elif isinstance(value, list):
        for element in value:
            _check_values(element)


def check_length(name: str, what: str = "name") -> str:
    """Return a name or routing key if it fits into a short string, which has up to 255 bytes."""
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > SHORTSTR_MAX:
        raise bad_request(f"{what} should be less than 255 bytes, actually was {size}\n")
    return name


async def compile_in_thread(source: object) -> None:
    """Compile a long pattern in a thread, which takes up to half a second. The next ``Pattern`` of it is cached.

    Args:
        source: The pattern. An invalid one is reported when it is used.
    """
    if isinstance(source, str) and len(source) > _SHORT:
        with suppress(InvalidPattern):
            await asyncio.to_thread(Pattern, source)
