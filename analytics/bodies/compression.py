"""Decompresses bodies as their publishers say: by the property content_encoding, and by the header that kombu sets."""

from __future__ import annotations

import base64
import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.bodies.errors import BodyError
from leveret.analytics.rows.field_table import decode_table

#: The largest message that a broker takes by default, in bytes: no body is decompressed beyond it.
_BYTES_MAX: Final = 134_217_728
#: The name of the header in a field table, with its length.
_HEADER: Final = b"\x0bcompression"
#: What content_encoding says of bodies that are as they are.
_AS_IT_IS: Final = frozenset({"", "identity", "none", "binary", "7bit", "8bit", "utf-8", "utf8", "ascii", "us-ascii"})


class Payloads(NamedTuple):
    """Bodies as their publishers made them.

    Attributes:
        octets: A binary array; null for those that cannot be decompressed.
        charsets: Names of character encodings other than UTF-8, by row.
        reasons: What is wrong with rows.
    """

    octets: pa.Array
    charsets: dict[int, str]
    reasons: dict[int, str]


def compressions_in(headers: pa.Array) -> pa.Array:
    """Return the headers `compression` of messages as a string array; null for those that have none.

    Args:
        headers: Their encoded field tables without the length, a binary array; null for those that have none.
    """
    marked = pc.fill_null(pc.match_substring(headers, _HEADER), False)
    if not pc.any(marked).as_py():
        return pa.nulls(len(headers), pa.string())
    found = [
        _compression(headers[row].as_py()) if has_header else None for row, has_header in enumerate(marked.to_pylist())
    ]
    return pa.array(found, pa.string())


def decompress(bodies: pa.Array, encodings: pa.Array, compressions: pa.Array) -> Payloads:
    """Decompress bodies.

    Args:
        bodies: A binary array.
        encodings: Their property content_encoding, a string array.
        compressions: Their header `compression`, a string array.
    """
    named = {text: steps for text in pc.unique(encodings).to_pylist() if (steps := _parse(text)) != ((), "")}
    if not named and compressions.null_count == len(compressions):
        return Payloads(bodies, {}, {})
    texts, further = encodings.to_pylist(), compressions.to_pylist()
    octets: list[bytes | None] = []
    charsets: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for row, body in enumerate(bodies.to_pylist()):
        applied, charset = named.get(texts[row], ((), ""))
        applied += _parse(further[row])[0]
        if charset:
            charsets[row] = charset
        try:
            octets.append(_undo(body, applied))
        except BodyError as error:
            octets.append(None)
            reasons[row] = str(error)
    return Payloads(pa.array(octets, pa.binary()), charsets, reasons)


def _parse(text: str | None) -> tuple[tuple[str, ...], str]:
    """Return the compressions that a text names, in the order of their use, and the character encoding."""
    steps: list[str] = []
    charset = ""
    for part in (text or "").lower().split(","):
        name = part.strip()
        if name in _UNDO:
            steps.append(name)
        elif name not in _AS_IT_IS and _is_charset(name):
            charset = name
    return tuple(steps), charset


def _is_charset(name: str) -> bool:
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def _compression(octets: bytes) -> str | None:
    value = (decode_table(octets) or {}).get("compression")
    return value.value if value is not None and value.kind == "longstr" else None


def _undo(body: bytes, steps: tuple[str, ...]) -> bytes:
    for name in reversed(steps):
        try:
            body = _UNDO[name](body)
        except (ValueError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise BodyError(f"it cannot be decompressed ({name}): {error}") from error
        if len(body) > _BYTES_MAX:
            raise BodyError(f"decompressed ({name}), it has more than {_BYTES_MAX} bytes")
    return body


def _undo_zlib(octets: bytes) -> bytes:
    """Undo gzip or zlib, or what has no header: all of them are called deflate or gzip somewhere."""
    try:
        return _run(zlib.decompressobj(zlib.MAX_WBITS | 32), octets)
    except zlib.error as error:
        try:
            return _run(zlib.decompressobj(-zlib.MAX_WBITS), octets)
        except zlib.error:
            raise error from None


def _run(decompressor: zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor, octets: bytes) -> bytes:
    found = decompressor.decompress(octets, _BYTES_MAX + 1)
    if not decompressor.eof and len(found) <= _BYTES_MAX:
        raise EOFError("its end is missing")
    return found


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    def undo(octets: bytes) -> bytes:
        with pa.CompressedInputStream(pa.BufferReader(octets), codec) as stream:
            found: bytes = stream.read(_BYTES_MAX + 1)
            return found

    return undo


def _by_name() -> dict[str, Callable[[bytes], bytes]]:
    known: list[tuple[Callable[[bytes], bytes], str]] = [
        (_undo_zlib, "gzip x-gzip deflate zlib application/gzip application/x-gzip application/zlib"),
        (lambda octets: _run(bz2.BZ2Decompressor(), octets), "bz2 bzip2 application/x-bz2 application/x-bzip2"),
        (lambda octets: _run(lzma.LZMADecompressor(), octets), "lzma xz application/x-lzma application/x-xz"),
        (_arrow("zstd"), "zstd zstandard application/zstd application/x-zstd"),
        (_arrow("brotli"), "br brotli application/x-brotli"),
        (lambda octets: base64.b64decode(octets, validate=True), "base64"),
    ]
    return {name: undo for undo, names in known for name in names.split()}


#: Undoes a compression, by its name in content_encoding or in the header `compression`.
_UNDO: Final = _by_name()
