"""Answers as JSON, with the columns that were asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

#: A long answer is sent in pieces of about this many characters.
_PIECE_SIZE: Final = 131_072

#: What is wanted of an object, key by key; an empty mapping wants all that is below.
Columns: TypeAlias = "dict[str, Columns]"


def encode(document: object) -> str:
    """A document as JSON, without white space."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def json_answer(document: object, status: int = 200) -> web.Response:
    """An answer with a body."""
    return json_text_answer(encode(document), status)


def json_text_answer(text: str, status: int = 200) -> web.Response:
    """An answer whose body is JSON already."""
    # A name that is not UTF-8 still makes an answer that is.
    return web.Response(
        status=status, body=text.encode("utf-8", "replace"), headers={"content-type": "application/json"}
    )


class LongText:
    """A long JSON text that is put together of many short ones."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._waiting: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Add some at the end."""
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= _PIECE_SIZE:
            self._pieces.append(self._rest())

    def answer(self) -> web.Response:
        """The answer with all of it; it is sent piece by piece if it is long."""
        rest = self._rest()
        body = Pieces([*self._pieces, rest]) if self._pieces else rest
        return web.Response(body=body, headers={"content-type": "application/json"})

    def _rest(self) -> bytes:
        rest = "".join(self._waiting).encode("utf-8", "replace")
        self._waiting, self._size = [], 0
        return rest


class Pieces(Payload):
    """A body that is sent piece by piece, so that others have a turn in between.

    Args:
        pieces: All of it.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces, content_type="application/json")
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All of it as text."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it."""
        for piece in self._pieces:
            await writer.write(piece)
            await asyncio.sleep(0)


def object_answer(request: web.Request, document: Mapping[str, Any]) -> web.Response:
    """An answer with one object, or with its columns that the request wants."""
    columns = wanted_columns(request)
    return json_answer(document if columns is None else select(document, columns))


def wanted_columns(request: web.Request) -> Columns | None:
    """The columns that a request wants (``columns=a,b.c``); None for all."""
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
    """The columns of an object; of a list, those of its objects. What it does not have is left out."""
    if not columns:
        return document
    if isinstance(document, Mapping):
        return {key: select(document[key], below) for key, below in columns.items() if key in document}
    if isinstance(document, Iterable) and not isinstance(document, str):
        return [select(element, columns) for element in document]
    return document
