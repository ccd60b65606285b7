"""Bodies as their publishers made them, and the columns `value` and `value_error` that are read from them."""

from __future__ import annotations

import base64
import bz2
import lzma
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.columns import PROPERTIES_OF_BODIES, VALUE, VALUE_COLUMNS, VALUE_ERROR
from leveret.analytics.rows.header_columns import decode_table
from leveret.analytics.rows.property_slices import Slices, binary_slices, property_column
from leveret.analytics.rows.record_rows import RecordRows


class BodyReader(Protocol):
    """Reads bodies.

    Attributes:
        kind: The type of the values.
    """

    kind: pa.DataType

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""


#: What serializers of a schema registry put in front of a body: a zero, and the number of its schema.
REGISTRY_BYTES: Final = 5
_END: Final = (1 << 31) - 1


class BodyError(ValueError):
    """A body, or a part of it, is not what it should be; the text says why, for the column `value_error`."""


def registry_number(octets: bytes) -> int | None:
    """Return the number of a body's schema in a schema registry; None if it does not begin as its serializers do."""
    if len(octets) < REGISTRY_BYTES or octets[0]:
        return None
    return int.from_bytes(octets[1:REGISTRY_BYTES], "big")


def require_number(octets: bytes) -> int:
    """Return the number of a body's schema in a schema registry.

    Raises:
        BodyError: It does not begin as its serializers do.
    """
    number = registry_number(octets)
    if number is None:
        raise BodyError("the body does not begin with the five bytes of a schema registry: 0, and its schema")
    return number


def registry_hint(octets: bytes) -> str:
    """Return what to add to the reason why a body cannot be read, if a schema registry may have to do with it."""
    number = registry_number(octets)
    if number is None:
        return ""
    return f"; it may begin with the five bytes of a schema registry (schema {number}), which only a rule reads"


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


def without_number(payloads: Payloads) -> Payloads:
    """Return bodies without the five bytes of a schema registry they begin with; others get a reason."""
    octets = payloads.octets
    begins = pc.and_(pc.starts_with(octets, b"\0"), pc.greater_equal(pc.binary_length(octets), REGISTRY_BYTES))
    for row in pc.indices_nonzero(pc.invert(pc.fill_null(begins, True))).to_pylist():
        try:
            require_number(octets[row].as_py())
        except BodyError as error:
            payloads.reasons[row] = str(error)
    # Arrow fails without an end.
    bare = pc.if_else(begins, pc.binary_slice(octets, REGISTRY_BYTES, _END), pa.scalar(None, pa.binary()))
    return payloads._replace(octets=bare)


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


def read_rows(
    read: Callable[[bytes, str], tuple[Any, str | None]],
    kind: pa.DataType,
    payloads: Payloads,
    start: int,
    octets: pa.Array,
) -> pa.Array:
    """Return the values of bodies; add what is wrong with some to the reasons of the payloads.

    Args:
        read: Returns the value of a body, and what did not fit; takes the body and its character encoding; raises
            BodyError if there is no value.
    """
    values: list[Any] = []
    for row, body in enumerate(octets.to_pylist(), start):
        value = reason = None
        if body is not None:
            try:
                value, reason = read(body, payloads.charsets.get(row, ""))
            except BodyError as error:
                reason = str(error)
        values.append(value)
        if reason is not None:
            payloads.reasons[row] = reason
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) > 1:
            halves = (octets.slice(0, len(values) // 2), octets.slice(len(values) // 2))
            parts = [
                read_rows(read, kind, payloads, start + offset, half)
                for offset, half in zip((0, len(halves[0])), halves, strict=True)
            ]
            return pa.concat_arrays(parts)
        payloads.reasons[start] = str(error)
        return pa.nulls(1, kind)


def value_columns(rows: RecordRows, slices: dict[str, Slices], reader: BodyReader) -> dict[str, Any]:
    """Return the columns.

    Args:
        slices: Where their properties are, PROPERTIES_OF_BODIES among them.
    """
    return columns_of(payloads_of(rows, slices), reader)


def columns_of(payloads: Payloads, reader: BodyReader) -> dict[str, Any]:
    """Return the columns."""
    values = reader.read(payloads)
    count, reasons = len(payloads.octets), payloads.reasons
    errors = pa.array(map(reasons.get, range(count)), pa.string()) if reasons else pa.nulls(count, pa.string())
    return {VALUE: values, VALUE_ERROR: errors}


def payloads_of(rows: RecordRows, slices: dict[str, Slices]) -> Payloads:
    """Return the bodies as their publishers made them; see value_columns()."""
    start = rows.body_at
    bodies = binary_slices(rows.octets, start, start + rows.body_len)
    encodings = property_column(rows, "content_encoding", slices["content_encoding"])
    compressions = pa.nulls(len(bodies), pa.string())
    headers = binary_slices(rows.octets, *slices["headers"])
    # To look for the name in all of them at once takes a fraction of the time.
    if _HEADER in headers.buffers()[2].to_pybytes():
        compressions = compressions_in(headers)
    return decompress(bodies, encodings, compressions)


#: Columns of the files that are needed to read bodies.
SOURCE_COLUMNS: Final = ("body", *sorted(PROPERTIES_OF_BODIES))


def stored_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of a file that are needed for some columns, the values of bodies among them."""
    return list(dict.fromkeys([*(name for name in columns if name not in VALUE_COLUMNS), *SOURCE_COLUMNS]))


def with_values(batch: pa.RecordBatch, columns: Sequence[str], reader: BodyReader) -> pa.RecordBatch:
    """Return rows of a file with the values of their bodies.

    Args:
        batch: Those of stored_columns().
    """
    values = columns_of(archived_payloads(batch), reader)
    arrays = [values[name] if name in values else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def archived_payloads(batch: pa.RecordBatch) -> Payloads:
    """Return the bodies of rows of a file as their publishers made them."""
    compressions = pc.map_lookup(batch.column("headers"), "compression", "first")
    return decompress(batch.column("body"), batch.column("content_encoding"), compressions)
