from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from leveret.protocol.faults import ConnectionFault
from leveret.protocol.properties import (
    DELIVERY_MODE,
    EXPIRATION,
    FLAGS,
    HEADERS,
    PRIORITY,
    REPLY_TO,
    USER_ID,
    Properties,
    encode_content_header,
    encode_headers,
    encode_text,
    read_flags,
)
from tests.support import content, tables
from tests.support.amqp_strategies import U64, any_short_text, encoded_properties, short_text
from tests.support.amqp_strategies import tables as any_tables

# pamqp's name for a property, where it is another.
OURS = {"message_type": "type"}
NAMES = {name: flag for flag, name in FLAGS}
TIMESTAMP = NAMES["timestamp"]
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        HEADERS: st.none() | any_tables().map(encode_headers),
        DELIVERY_MODE: st.none() | st.binary(min_size=1, max_size=1),
        REPLY_TO: st.none() | short_text().map(encode_text),
        EXPIRATION: st.none() | short_text().map(encode_text),
        TIMESTAMP: st.none() | st.binary(min_size=8, max_size=8),
    },
)


def refuse(payload: bytes) -> None:
    """Check rule 12.31."""
    with pytest.raises(ConnectionFault) as caught:
        Properties(payload).headers()
    assert (caught.value.text, int(caught.value.code), caught.value.method) == ("INTERNAL_ERROR", 541, 0)


def test_flags_are_those_of_the_specification() -> None:
    assert [flag for flag, _ in FLAGS] == [1 << bit for bit in range(15, 1, -1)]
    assert [name for _, name in FLAGS] == [name for name, _ in content.FIELDS]
    assert {OURS.get(name, name): flag for name, flag in commands.Basic.Properties.flags.items()} == NAMES
    named = {"headers": HEADERS, "delivery_mode": DELIVERY_MODE, "priority": PRIORITY, "reply_to": REPLY_TO,
             "expiration": EXPIRATION, "user_id": USER_ID}  # fmt: skip
    assert named.items() <= NAMES.items()


@given(values=encoded_properties(), size=U64)
def test_raw_values_are_those_that_were_written(values: dict[int, bytes], size: int) -> None:
    payload = encode_content_header(size, values)
    properties = Properties(payload)
    assert properties.payload is payload
    assert {flag: properties.raw(flag) for flag, _ in FLAGS} == {flag: values.get(flag) for flag, _ in FLAGS}
    assert read_flags(payload) == properties.flags == sum(values)
    assert payload[:12] == struct.pack(">HHQ", 60, 0, size)
    # The values stand in the order of the flags and fill the payload.
    assert payload[14:] == b"".join(values[flag] for flag in sorted(values, reverse=True))


@given(values=encoded_properties())
def test_decoded_values(values: dict[int, bytes]) -> None:
    payload = encode_content_header(0, values)
    properties, independent = Properties(payload), content.Content(payload, b"").properties
    read = properties.as_dict()
    assert list(read) == list(independent)
    for name, value in read.items():
        if name == "headers":
            assert encode_headers(value) == values[HEADERS]
            assert value == properties.headers()
        else:
            assert value == independent[name]
    assert properties.octet(PRIORITY, 300) == independent.get("priority", 300)
    assert properties.octet(DELIVERY_MODE, 1) == independent.get("delivery_mode", 1)
    assert properties.text(REPLY_TO) == independent.get("reply_to")
    assert properties.timestamp() == independent.get("timestamp")
    assert ("headers" in read) == (properties.raw(HEADERS) is not None)


TEXTS = {
    name: short_text(120).filter(bool) for name, kind in content.FIELDS if kind == "shortstr" and name != "cluster_id"
}


@given(
    given_values=st.fixed_dictionaries(
        {},
        optional={
            **TEXTS,
            "delivery_mode": st.sampled_from((1, 2)),
            "priority": st.integers(0, 255),
            "headers": st.dictionaries(short_text(40), st.integers(-9, 2**40) | short_text(40), max_size=4),
        },
    ),
    size=U64,
)
def test_what_pamqp_writes_is_read(given_values: dict[str, Any], size: int) -> None:
    renamed = {"message_type" if name == "type" else name: value for name, value in given_values.items()}
    payload = header.ContentHeader(0, size, commands.Basic.Properties(**renamed)).marshal()
    properties = Properties(payload)
    read = properties.as_dict()
    headers = dict(given_values.get("headers", {}))
    assert {key: value for key, value in read.items() if key != "headers"} == {
        key: value for key, value in given_values.items() if key != "headers"
    }
    assert tables.plain(tables.decode(properties.raw(HEADERS) or b"\0\0\0\0")) == headers
    taken = {flag: raw for flag, _ in FLAGS if (raw := properties.raw(flag)) is not None}
    assert encode_content_header(size, taken) == payload


@given(values=encoded_properties())
def test_what_we_write_is_read_by_pamqp(values: dict[int, bytes]) -> None:
    texts = {name for name, kind in content.FIELDS if kind == "shortstr"}
    readable = {NAMES[name]: encode_text(name) for name in texts if NAMES[name] in values}
    readable |= {flag: raw for flag, raw in values.items() if flag in (DELIVERY_MODE, PRIORITY)}
    read = header.ContentHeader()
    read.unmarshal(encode_content_header(7, readable))
    class_id: int | None = read.class_id
    assert class_id == 60
    assert (read.weight, read.body_size) == (0, 7)
    for theirs, flag in commands.Basic.Properties.flags.items():
        name, value = OURS.get(theirs, theirs), getattr(read.properties, theirs)
        if flag not in readable:
            assert value == getattr(commands.Basic.Properties(), theirs)
        else:
            assert value == (name if name in texts else readable[flag][0])


# -- replacing ----------------------------------------------------------------------------------------------


@given(values=encoded_properties(), changes=CHANGES, size=U64)
def test_a_change_leaves_the_others_byte_for_byte(
    values: dict[int, bytes], changes: dict[int, bytes | None], size: int
) -> None:
    before = Properties(encode_content_header(size, values))
    after = Properties(before.replaced(changes))
    assert after.payload[:12] == before.payload[:12]
    for flag, _ in FLAGS:
        assert after.raw(flag) == (changes[flag] if flag in changes else before.raw(flag))
    left = {**values, **changes}
    assert after.payload == encode_content_header(size, {flag: raw for flag, raw in left.items() if raw is not None})


@given(values=encoded_properties())
def test_no_change_changes_nothing(values: dict[int, bytes]) -> None:
    payload = encode_content_header(0, values)
    assert Properties(payload).replaced({}) == payload
    assert Properties(payload).replaced(dict.fromkeys(NAMES.values())) == encode_content_header(0)


@given(any_short_text())
def test_texts(text: str) -> None:
    assert Properties(encode_content_header(0, {REPLY_TO: encode_text(text)})).text(REPLY_TO) == text


def test_bits_that_mean_nothing_survive() -> None:
    # RabbitMQ takes them where nothing follows for them.
    for bits in (1, 2, 3):
        payload = encode_content_header(0)[:12] + struct.pack(">H", bits)
        assert Properties(payload).as_dict() == {}
        assert Properties(payload).replaced({}) == payload
        assert read_flags(Properties(payload).replaced({DELIVERY_MODE: b"\x02"})) == DELIVERY_MODE | bits


# -- mistakes -----------------------------------------------------------------------------------------------


@given(values=encoded_properties(), data=st.data())
def test_values_cut_short_are_refused(values: dict[int, bytes], data: st.DataObject) -> None:
    payload = encode_content_header(0, values)
    refuse(payload[: data.draw(st.integers(0, len(payload) - 1))])


@given(values=encoded_properties(), extra=st.binary(min_size=1, max_size=20))
def test_bytes_behind_the_values_are_refused(values: dict[int, bytes], extra: bytes) -> None:
    refuse(encode_content_header(0, values) + extra)


@pytest.mark.parametrize(
    "entries", [b"\x01aU\0\0", b"\x01an", b"\x01aC\0", b"\x01aZ\0", b"\x09a", b"\x01aS\0\0\0\x09", b"\x01a"]
)
def test_a_table_that_cannot_be_read_is_refused_when_it_is_looked_at(entries: bytes) -> None:
    payload = encode_content_header(0, {HEADERS: struct.pack(">I", len(entries)) + entries})
    assert Properties(payload).raw(HEADERS) == payload[14:]
    refuse(payload)


@given(payload=st.binary(max_size=60))
def test_any_bytes_are_properties_or_refused(payload: bytes) -> None:
    try:
        properties = Properties(payload)
        properties.as_dict()
    except ConnectionFault:
        refuse(payload)
    else:
        assert properties.replaced({}) == payload
