"""Responses: JSON, optionally with a selection of columns, errors in RabbitMQ's format, and what a request accepts.

Handlers raise the exceptions that functions return. They may also raise an ``AmqpFault``, which the middleware
converts.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar
from zlib import compress, decompress

from aiohttp import Payload, hdrs, web
from aiohttp.abc import AbstractStreamWriter

from leveret.broker.core.scheduling.slices import in_slices
from leveret.protocol.faults import AmqpFault, ReplyCode
from leveret.protocol.short_strings import replace_escapes

#: Long responses are sent in pieces of about this many characters.
_PIECE_SIZE: Final = 131_072

#: Selected keys of an object, nested; an empty mapping selects everything below its key.
Columns: TypeAlias = "dict[str, Columns]"
#: Media types that match the responses of the API. A request that accepts none of these is refused.
_ACCEPTED: Final = frozenset(("application/json", "application/*", "*/*"))
#: Paths where RabbitMQ responds with a status only and accepts any Accept header.
_WITHOUT_ANSWERS: Final = re.compile(
    r"/api/(?:queues/[^/]*/[^/]*/(?:contents|actions)|(?:vhost|user)-limits/[^/]*/[^/]*)/?$"
)


def encode(document: object) -> str:
    """Return a document as JSON without white space. Names may not be UTF-8; the text is."""
    return replace_escapes(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def notice(text: str) -> dict[str, str]:
    """Return headers that say what a person should know about a change that succeeded; RabbitMQ's answer has no body.

    Args:
        text: The text; "" for none.
    """
    # Names may have any characters.
    return {"leveret-notice": json.dumps(text)[1:-1]} if text else {}


def json_response(document: object, status: int = 200) -> web.Response:
    """Return a response with a document as JSON."""
    return web.Response(status=status, body=encode(document).encode(), headers={"content-type": "application/json"})


class LongText:
    """Builder of a long JSON text from many short ones.

    What is long is kept compressed, to about a tenth: clients may take minutes to read it, and there may be many.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._waiting: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Append text."""
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= _PIECE_SIZE:
            piece = self._encode_added()
            self._length += len(piece)
            self._pieces.append(compress(piece, 1))

    async def add_all(self, items: Iterable[Item], describe: Callable[[Item], object]) -> None:
        """Append the documents of objects, separated by commas, in slices."""
        comma = ""
        async for item in in_slices(items):
            self.add(comma + encode(describe(item)))
            comma = ","

    def steps(self, pieces: Iterable[str]) -> Iterator[None]:
        """Append pieces of text, in one step each."""
        for piece in pieces:
            self.add(piece)
            yield

    def response(self) -> web.Response:
        """Return the response with all text; a long one is sent in pieces."""
        rest = self._encode_added()
        body = ChunkedBody(self._pieces, rest, self._length + len(rest)) if self._pieces else rest
        return web.Response(body=body, headers={"content-type": "application/json"})

    def _encode_added(self) -> bytes:
        rest = "".join(self._waiting).encode()
        self._waiting, self._size = [], 0
        return rest


class ChunkedBody(Payload):
    """A body that is sent in pieces; other connections are served in between.

    Args:
        pieces: The body without its end, in compressed pieces.
        size: Its length in bytes.
    """

    def __init__(self, pieces: Sequence[bytes], end: bytes, size: int) -> None:
        super().__init__(pieces, content_type="application/json")
        self._pieces = pieces
        self._end = end
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return b"".join([*map(decompress, self._pieces), self._end]).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        for piece in self._pieces:
            await writer.write(decompress(piece))
            await asyncio.sleep(0)
        await writer.write(self._end)


def object_response(request: web.Request, document: Mapping[str, Any]) -> web.Response:
    """Return a response with one object, or with the columns of it that the request selects."""
    columns = wanted_columns(request)
    return json_response(document if columns is None else select(document, columns))


def wanted_columns(request: web.Request) -> Columns | None:
    """Return the columns that a request selects (``columns=a,b.c``); None for all."""
    text = request.query.get("columns")
    if text is None:
        return None
    wanted: Columns = {}
    for column in text.split(","):
        level = wanted
        for key in column.split("."):
            level = level.setdefault(key, {})
    return wanted


def select(document: Any, columns: Columns) -> Any:
    """Return the selected columns of an object, or of each object in a list. Missing columns are skipped."""
    if not columns:
        return document
    if isinstance(document, Mapping):
        return {key: select(document[key], below) for key, below in columns.items() if key in document}
    if isinstance(document, Iterable) and not isinstance(document, str):
        return [select(element, columns) for element in document]
    return document


def accepts_json(request: web.Request) -> bool:
    """Check whether a request accepts JSON. Without the header it does."""
    accept = request.headers.get(hdrs.ACCEPT)
    if not accept:
        return True
    return any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in accept.split(","))


def require_json_accepted(request: web.Request) -> None:
    """Refuse a request that does not accept JSON, before anything else is checked.

    Raises:
        HTTPNotAcceptable: The request does not accept JSON.
    """
    if not accepts_json(request) and _WITHOUT_ANSWERS.search(request.rel_url.raw_path) is None:
        raise web.HTTPNotAcceptable(text="")


def accepts_gzip(request: web.Request) -> bool:
    """Check whether the header Accept-Encoding allows gzip: it is named with a weight other than 0.

    Source: RFC 9110 section 12.5.3
    """
    for part in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return not weight or weight.strip("0.") != ""
    return False


Found = TypeVar("Found")
Item = TypeVar("Item")
#: Header that requests a name and a password.
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


def failure(
    status: type[web.HTTPException],
    error: str,
    reason: object,
    headers: Mapping[str, str] | None = None,
    detail: str = "",
) -> web.HTTPException:
    """Return an error response.

    Args:
        status: aiohttp's exception for the status code.
        error: The kind of error, for example ``bad_request``.
        reason: Text, or a list where RabbitMQ has an Erlang tuple.
        headers: Further headers.
        detail: What RabbitMQ does not say; "" for nothing.
    """
    text = encode({"error": error, "reason": reason, **({"detail": detail} if detail else {})})
    return status(text=text, headers={**(headers or {}), "content-type": "application/json"})


def not_found() -> web.HTTPException:
    """Return 404: the path or object does not exist."""
    return failure(web.HTTPNotFound, "Object Not Found", "Not Found")


def missing(reason: str) -> web.HTTPException:
    """Return 404: something that the request needs does not exist, for example ``vhost_not_found``."""
    return failure(web.HTTPNotFound, "not_found", reason)


def existing(found: Found | None) -> Found:
    """Return what was found.

    Raises:
        HTTPNotFound: It is None.
    """
    if found is None:
        raise not_found()
    return found


def bad_request(reason: object, detail: str = "") -> web.HTTPException:
    """Return 400: the request is invalid. For the arguments see failure()."""
    return failure(web.HTTPBadRequest, "bad_request", reason, detail=detail)


@contextmanager
def bad_request_if(*errors: type[Exception], reason: Callable[[str], str] = str) -> Iterator[None]:
    """Respond with 400 if an error of these kinds is raised.

    Args:
        reason: Returns the reason from the error's text.
    """
    try:
        yield
    except errors as error:
        raise bad_request(reason(str(error))) from None


def not_authorised(reason: str) -> web.HTTPException:
    """Return 401: the user is authenticated but not allowed to do this."""
    return failure(web.HTTPUnauthorized, "not_authorised", reason)


def login_failed() -> web.HTTPException:
    """Return 401: wrong name or password."""
    return failure(web.HTTPUnauthorized, "not_authorized", "Login failed", CHALLENGE)


def from_fault(fault: AmqpFault) -> web.HTTPException:
    """Return the response for an operation that the broker refused with an AMQP reply code."""
    if fault.code is ReplyCode.ACCESS_REFUSED:
        return not_authorised("Access refused.")
    if fault.code is ReplyCode.RESOURCE_ERROR:
        return failure(web.HTTPServiceUnavailable, "service_unavailable", fault.explanation)
    if fault.code is ReplyCode.NOT_FOUND:
        return missing(fault.explanation)
    return bad_request(fault.explanation)
