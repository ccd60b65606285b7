"""Hypothesis strategies for field tables, methods, content headers, frames and streams of frames."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from hypothesis import strategies as st

from leveret.protocol.constants import BASIC_ACK
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.protocol.methods import INDEX, METHODS, Method, encode_method
from leveret.protocol.properties import FLAGS, encode_content_header, encode_headers

U8 = st.integers(0, 0xFF)
U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFF_FFFF)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


@cache
def short_text(size: int = 255) -> st.SearchStrategy[str]:
    """Text for a short string: valid UTF-8 of at most `size` bytes."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=size // 4)


@cache
def any_short_text() -> st.SearchStrategy[str]:
    """Text decoded from arbitrary bytes of a short string; invalid UTF-8 becomes surrogates."""
    return st.binary(max_size=255).map(lambda octets: octets.decode("utf-8", "surrogateescape"))


# -- tables -------------------------------------------------------------------------------------------------

#: Values of each scalar type letter. Erlang has no infinite floats and no NaN.
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "t": st.booleans(),
    "b": st.integers(-(2**7), 2**7 - 1),
    "B": U8,
    "s": st.integers(-(2**15), 2**15 - 1),
    "u": U16,
    "I": st.integers(-(2**31), 2**31 - 1),
    "i": U32,
    "l": I64,
    # Read as signed, as RabbitMQ does.
    "L": I64,
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "D": st.tuples(U8, U32),
    "S": st.binary(max_size=40),
    "x": st.binary(max_size=40),
    "T": U64,
    "V": st.none(),
}
LETTERS = "".join(SCALARS) + "AF"


def value_of(kind: str) -> st.SearchStrategy[FieldValue]:
    """Values of one type letter; arrays and tables contain any type."""
    if kind == "A":
        return st.lists(field_values(), max_size=4).map(lambda items: FieldValue("A", tuple(items)))
    if kind == "F":
        return tables().map(lambda table: FieldValue("F", table))
    return SCALARS[kind].map(lambda value: FieldValue(kind, value))


def _extend(values: st.SearchStrategy[FieldValue]) -> st.SearchStrategy[FieldValue]:
    arrays = st.lists(values, max_size=4).map(lambda items: FieldValue("A", tuple(items)))
    return arrays | _entries(values).map(lambda table: FieldValue("F", table))


def _entries(values: st.SearchStrategy[FieldValue]) -> st.SearchStrategy[FieldTable]:
    keys = short_text(40) | any_short_text()
    return st.lists(st.tuples(keys, values), max_size=4).map(tuple)


@cache
def field_values() -> st.SearchStrategy[FieldValue]:
    """Values of every type letter, nested a few levels deep."""
    scalars = st.one_of(*(value_of(kind) for kind in SCALARS))
    return st.recursive(scalars, _extend, max_leaves=8)


@cache
def tables() -> st.SearchStrategy[FieldTable]:
    """Tables of all types, with empty and repeated keys and keys that are not UTF-8."""
    return _entries(field_values())


# -- methods ------------------------------------------------------------------------------------------------


@cache
def arguments_of(method: Method) -> st.SearchStrategy[tuple[Any, ...]]:
    """Values of all arguments of a method, as decode_arguments() returns them."""
    domains: dict[str, st.SearchStrategy[Any]] = {
        "bit": st.booleans(),
        "octet": U8,
        "short": U16,
        "long": U32,
        "longlong": U64,
        "shortstr": short_text(),
        "longstr": st.binary(max_size=300),
        "table": tables(),
    }
    return st.tuples(*(domains[domain] for _, domain in method.arguments))


# Methods without content, except basic.ack, which the frame reader packs into runs.
_CONTENT = {INDEX[name] for name in ("basic.publish", "basic.return", "basic.deliver", "basic.get-ok")}
_PLAIN = sorted(set(METHODS) - _CONTENT - {BASIC_ACK})


def method_frames(channels: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    """Frames of all methods except basic.ack and those with content."""

    def frames(index: int) -> st.SearchStrategy[bytes]:
        arguments = arguments_of(METHODS[index])
        return st.tuples(channels, arguments).map(lambda drawn: encode_method(drawn[0], index, *drawn[1]))

    return st.sampled_from(_PLAIN).flatmap(frames)


def ack_frames(channels: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    """Frames of basic.ack, most of them single."""
    multiple = st.sampled_from((False, False, False, True))
    return st.builds(
        lambda channel, tag, flag: encode_method(channel, BASIC_ACK, tag, flag),
        channels,
        st.integers(0, 2**63 - 1),
        multiple,
    )


# -- contents -----------------------------------------------------------------------------------------------


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    """Return a frame of any type."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))


def _encoded(name: str) -> st.SearchStrategy[bytes]:
    if name == "headers":
        return tables().map(encode_headers)
    if name in ("delivery_mode", "priority"):
        return st.binary(min_size=1, max_size=1)
    if name == "timestamp":
        return st.binary(min_size=8, max_size=8)
    return st.binary(max_size=255).map(lambda octets: bytes((len(octets),)) + octets)


def encoded_properties() -> st.SearchStrategy[dict[int, bytes]]:
    """Encoded values of some properties by flag, with arbitrary bytes in strings."""
    return st.fixed_dictionaries({}, optional={flag: _encoded(name) for flag, name in FLAGS})


def content_headers(body_size: int = 0) -> st.SearchStrategy[bytes]:
    """Content-header payloads with any properties."""
    return encoded_properties().map(lambda values: encode_content_header(body_size, values))


def publish_frame(channel: int, exchange: str, routing_key: str, flags: int = 0, ticket: int = 0) -> bytes:
    """Return a frame of basic.publish."""
    mandatory, immediate = bool(flags & 1), bool(flags & 2)
    return encode_method(channel, INDEX["basic.publish"], ticket, exchange, routing_key, mandatory, immediate)


def message_frames(channel: int, route: bytes, header: bytes, chunks: list[bytes]) -> list[bytes]:
    """Return the frames of one message."""
    size = struct.pack(">Q", sum(map(len, chunks)))
    return [
        route,
        frame(2, channel, header[:4] + size + header[12:]),
        *(frame(3, channel, chunk) for chunk in chunks),
    ]


@st.composite
def messages(draw: st.DrawFn, channel: int) -> list[bytes]:
    """The frames of messages that are often equal, so that they form runs."""
    route = publish_frame(
        channel,
        draw(st.sampled_from(("", "x"))),
        draw(st.sampled_from(("a", "b", "k\u00e4y"))),
        draw(st.sampled_from((0, 0, 1))),
    )
    header = draw(st.sampled_from((encode_content_header(0), encode_content_header(0, {0x1000: b"\x02"}))))
    body = draw(st.sampled_from((b"", b"12345", b"67890", b"123456789", b"\xce" * 5)))
    cut = draw(st.sampled_from((None, None, None, 0, 3)))
    chunks = [body] if cut is None else [body[:cut], body[cut:]]
    return message_frames(channel, route, header, chunks if body else [])


@st.composite
def streams(draw: st.DrawFn, channel_count: int = 3) -> list[bytes]:
    """Frames of a correct peer: messages, acks and methods of interleaved channels."""
    numbers = draw(st.permutations((1, 2, 256, 257, 0x3C00)))[:channel_count]
    lanes = [draw(st.lists(_lane_item(number), max_size=6)) for number in numbers]
    lanes.append([[frame(8, 0, b"")] for _ in range(draw(st.integers(0, 2)))])
    if draw(st.booleans()):
        # Not interleaved, so that runs are formed.
        return [part for lane in lanes for item in lane for part in item]
    frames: list[bytes] = []
    flat = [[part for item in lane for part in item] for lane in lanes]
    while any(flat):
        lane = draw(st.sampled_from([lane for lane in flat if lane]))
        frames.append(lane.pop(0))
    return frames


def _lane_item(channel: int) -> st.SearchStrategy[list[bytes]]:
    just = st.just(channel)
    repeated = st.tuples(messages(channel), st.integers(1, 4)).map(lambda drawn: drawn[0] * drawn[1])
    return st.one_of(
        repeated,
        messages(channel),
        st.lists(ack_frames(just), min_size=1, max_size=5),
        _small_methods(channel).map(lambda encoded: [encoded]),
    )


def _small_methods(channel: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        (
            encode_method(channel, INDEX["channel.open"], ""),
            encode_method(channel, INDEX["basic.qos"], 0, 10, False),
            encode_method(channel, INDEX["basic.nack"], 7, True, True),
            encode_method(channel, INDEX["queue.delete"], 0, "q\u00e4", False, True, False),
        )
    )


@st.composite
def cuts(draw: st.DrawFn, octets: bytes) -> list[bytes]:
    """The same bytes in pieces, as a socket may deliver them."""
    ends = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=12)))
    return [octets[start:end] for start, end in zip([0, *ends], [*ends, len(octets)], strict=True)]


@st.composite
def mutations(draw: st.DrawFn, octets: bytes) -> bytes:
    """The same bytes with some replaced, removed or inserted."""
    mutated = bytearray(octets)
    for _ in range(draw(st.integers(1, 4))):
        if not mutated:
            break
        at = draw(st.integers(0, len(mutated) - 1))
        kind = draw(st.sampled_from(("replace", "small", "remove", "insert", "cut")))
        if kind == "replace":
            mutated[at] = draw(U8)
        elif kind == "small":
            # Sizes and types are small numbers, so small values are most likely to pass the first checks.
            mutated[at] = draw(st.sampled_from((0, 1, 2, 3, 4, 8, 13, 14, 20, 40, 50, 60, 80, 0xCE)))
        elif kind == "remove":
            del mutated[at : at + draw(st.integers(1, 12))]
        elif kind == "insert":
            mutated[at:at] = draw(st.binary(min_size=1, max_size=12))
        else:
            del mutated[at:]
    return bytes(mutated)
