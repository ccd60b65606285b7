from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import base, commands, encode
from pamqp import frame as pamqp_frame

from leveret.protocol.erlang_terms import format_octets
from leveret.protocol.faults import ConnectionFault, WireFault
from leveret.protocol.field_table import decode_table
from leveret.protocol.methods import INDEX, METHODS, Method, ack_head, decode_arguments, encode_ack, encode_method
from leveret.protocol.short_strings import encode_shortstr
from tests.support.amqp_strategies import (
    U16,
    any_short_text,
    arguments_of,
    field_values,
    short_text,
)
from tests.support.examples import examples

BY_NAME = sorted(INDEX)
PAMQP = [name for name in BY_NAME if INDEX[name] in commands.INDEX_MAPPING]
# basic.publish is never refused for its text, because the frame reader reads it itself.
WITH_TEXT = [name for name in BY_NAME if any(domain == "shortstr" for _, domain in METHODS[INDEX[name]].arguments)]
WITH_TABLE = [name for name in BY_NAME if any(domain == "table" for _, domain in METHODS[INDEX[name]].arguments)]


def method(name: str) -> Method:
    return METHODS[INDEX[name]]


def arguments(frame: bytes) -> bytes:
    """The arguments of a method frame."""
    return frame[11:-1]


def refusal(name: str, octets: bytes) -> ConnectionFault:
    with pytest.raises(ConnectionFault) as caught:
        decode_arguments(method(name), octets)
    return caught.value


def check_cannot_decode(name: str, octets: bytes) -> None:
    """Check rule 12.7."""
    fault = refusal(name, octets)
    assert fault.text == f"FRAME_ERROR - cannot decode {format_octets(octets)}"
    assert (int(fault.code), fault.method, fault.discards_input) == (501, INDEX[name], False)


# -- the catalogue ------------------------------------------------------------------------------------------


def test_the_catalogue_holds_all_methods_of_the_rules() -> None:
    numbers = {
        "connection": (10, "start 10 start-ok 11 secure 20 secure-ok 21 tune 30 tune-ok 31 open 40 open-ok 41"
                       " close 50 close-ok 51 blocked 60 unblocked 61 update-secret 70 update-secret-ok 71"),
        "channel": (20, "open 10 open-ok 11 flow 20 flow-ok 21 close 40 close-ok 41"),
        "access": (30, "request 10 request-ok 11"),
        "exchange": (40, "declare 10 declare-ok 11 delete 20 delete-ok 21 bind 30 bind-ok 31 unbind 40 unbind-ok 51"),
        "queue": (50, "declare 10 declare-ok 11 bind 20 bind-ok 21 purge 30 purge-ok 31 delete 40 delete-ok 41"
                  " unbind 50 unbind-ok 51"),
        "basic": (60, "qos 10 qos-ok 11 consume 20 consume-ok 21 cancel 30 cancel-ok 31 publish 40 return 50"
                  " deliver 60 get 70 get-ok 71 get-empty 72 ack 80 reject 90 recover-async 100 recover 110"
                  " recover-ok 111 nack 120"),
        "confirm": (85, "select 10 select-ok 11"),
        "tx": (90, "select 10 select-ok 11 commit 20 commit-ok 21 rollback 30 rollback-ok 31"),
    }  # fmt: skip
    wanted = {}
    for group, (class_id, listed) in numbers.items():
        words = listed.split()
        for verb, number in zip(words[::2], words[1::2], strict=True):
            wanted[f"{group}.{verb}"] = class_id << 16 | int(number)
    assert wanted == INDEX
    assert all(METHODS[index].index == index and METHODS[index].name == name for name, index in wanted.items())


def test_access_request_is_that_of_amqp_0_8() -> None:
    frame = encode_method(1, INDEX["access.request"], "/data", True, False, True, False, True)
    assert frame == b"\x01\x00\x01\x00\x00\x00\x0b\x00\x1e\x00\x0a\x05/data\x15\xce"
    assert (
        encode_method(1, INDEX["access.request-ok"], 1) == b"\x01\x00\x01\x00\x00\x00\x06\x00\x1e\x00\x0b\x00\x01\xce"
    )


# -- both ways ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=25)
@given(data=st.data(), channel=U16)
def test_every_method_comes_back(name: str, data: st.DataObject, channel: int) -> None:
    values = data.draw(arguments_of(method(name)))
    frame = encode_method(channel, INDEX[name], *values)
    size = len(frame) - 8
    assert frame[:11] == struct.pack(">BHII", 1, channel, size, INDEX[name])
    assert frame[-1] == 0xCE
    decoded = decode_arguments(method(name), arguments(frame))
    assert decoded == values
    assert encode_method(channel, INDEX[name], *decoded) == frame


@given(channel=U16, tag=st.integers(0, 2**64 - 1), multiple=st.booleans())
def test_an_ack_is_encoded_like_any_other_method(channel: int, tag: int, multiple: bool) -> None:
    assert encode_ack(ack_head(channel), tag, multiple) == encode_method(channel, INDEX["basic.ack"], tag, multiple)


def pamqp_values(domains: list[tuple[str, str]]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Arguments as pamqp takes them."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "bit": st.booleans(),
        "octet": st.integers(0, 0xFF),
        "short": U16,
        "long": st.integers(0, 0xFFFFFFFF),
        "longlong": st.integers(0, 2**63 - 1),
        "shortstr": short_text(),
        "longstr": st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
        "table": st.dictionaries(
            short_text(40), st.integers(-(2**63), 2**63 - 1) | st.booleans() | short_text(40), max_size=4
        ),
    }
    return st.tuples(*(drawn[domain] for _, domain in domains))


def as_ours(domain: str, value: Any) -> Any:
    if domain == "longstr":
        return value.encode()
    if domain == "table":
        # pamqp chooses the types: take over what it writes.
        return decode_table(encode.field_table(value)[4:])
    return value


def unchecked(kind: type[base.Frame]) -> Any:
    """A method of pamqp that does not check names, of which RabbitMQ allows more."""
    return object.__new__(type(kind.__name__, (kind,), {"validate": lambda self: None}))


# pamqp warns of basic.recover-async.
@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", PAMQP)
@settings(max_examples=25)
@given(data=st.data(), channel=U16)
def test_every_method_is_written_as_pamqp_writes_it(name: str, data: st.DataObject, channel: int) -> None:
    ours = method(name)
    values = data.draw(pamqp_values(list(ours.arguments)))
    command = unchecked(commands.INDEX_MAPPING[ours.index])
    for (argument, _), value in zip(ours.arguments, values, strict=True):
        setattr(command, argument, value)
    taken = [as_ours(domain, value) for (_, domain), value in zip(ours.arguments, values, strict=True)]
    frame = encode_method(channel, ours.index, *taken)
    assert frame == pamqp_frame.marshal(command, channel)
    assert decode_arguments(ours, arguments(frame)) == tuple(taken)
    consumed, read_channel, read = pamqp_frame.unmarshal(frame)
    assert (consumed, read_channel) == (len(frame), channel)
    assert [(argument, getattr(read, argument)) for argument, _ in ours.arguments] == [
        (argument, value) for (argument, _), value in zip(ours.arguments, values, strict=True)
    ]


def test_a_new_octet_of_bits_begins_behind_other_arguments() -> None:
    assert arguments(encode_method(1, INDEX["queue.declare"], 0, "q", True, False, True, False, True, ())) == (
        b"\0\0\x01q\x15\0\0\0\0"
    )
    assert arguments(encode_method(1, INDEX["basic.consume"], 0, "q", "t", False, True, False, True, ())) == (
        b"\0\0\x01q\x01t\x0a\0\0\0\0"
    )


def test_bits_that_mean_nothing_are_ignored() -> None:
    assert decode_arguments(method("basic.ack"), b"\0" * 7 + b"\x05\xfe") == (5, False)
    assert decode_arguments(method("basic.ack"), b"\0" * 7 + b"\x05\xff") == (5, True)


@given(any_short_text())
def test_short_strings_take_text_and_bytes(text: str) -> None:
    octets = text.encode("utf-8", "surrogateescape")
    assert encode_shortstr(text) == encode_shortstr(octets) == bytes((len(octets),)) + octets


@pytest.mark.parametrize("text", ["x" * 256, "\u00e4" * 128, b"x" * 256])
def test_short_strings_are_never_longer_than_255_bytes(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        encode_shortstr(text)


def test_a_method_takes_all_its_arguments_and_no_more() -> None:
    with pytest.raises(ValueError):
        encode_method(1, INDEX["basic.ack"], 1)
    with pytest.raises(ValueError):
        encode_method(1, INDEX["basic.ack"], 1, False, False)


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=25)
@given(data=st.data())
def test_arguments_cut_short_cannot_be_decoded(name: str, data: st.DataObject) -> None:
    values = data.draw(arguments_of(method(name)))
    octets = arguments(encode_method(1, INDEX[name], *values))
    if octets:
        check_cannot_decode(name, octets[: data.draw(st.integers(0, len(octets) - 1))])


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=25)
@given(data=st.data(), extra=st.binary(min_size=1, max_size=20))
def test_arguments_with_more_behind_cannot_be_decoded(name: str, data: st.DataObject, extra: bytes) -> None:
    values = data.draw(arguments_of(method(name)))
    check_cannot_decode(name, arguments(encode_method(1, INDEX[name], *values)) + extra)


def values_with(name: str, domain: str, odd: Any) -> list[Any]:
    """Plain arguments, with an odd one where a domain stands first."""
    plain = {"bit": False, "shortstr": "", "longstr": b"", "table": ()}
    domains = [each for _, each in method(name).arguments]
    values: list[Any] = [plain.get(each, 0) for each in domains]
    values[domains.index(domain)] = odd
    return values


@pytest.mark.parametrize("name", WITH_TEXT)
@pytest.mark.parametrize("text", [b"\xff", b"a\xc3", b"\xc0\x80", b"\x80"])
def test_text_must_be_utf_8(name: str, text: bytes) -> None:
    octets = arguments(encode_method(1, INDEX[name], *values_with(name, "shortstr", text)))
    fault = refusal(name, octets)
    assert (fault.text, fault.method) == ("FRAME_ERROR - Malformed UTF-8 in shortstr", 0)
    # RabbitMQ looks at the lengths first.
    check_cannot_decode(name, octets + b"\0")
    check_cannot_decode(name, octets[: octets.index(text)])


# An unknown letter, a key beyond the end, a value cut short.
MALFORMED = [b"\x01aZ\0", b"\x05a", b"\x01aI\0"]


@pytest.mark.parametrize("name", WITH_TABLE)
@pytest.mark.parametrize("table", MALFORMED)
def test_a_table_that_cannot_be_read_drops_the_connection(name: str, table: bytes) -> None:
    octets = arguments(encode_method(1, INDEX[name], *values_with(name, "table", ())))
    at = octets.rindex(b"\0\0\0\0") if not name.endswith("start-ok") else 0
    with_table = octets[:at] + struct.pack(">I", len(table)) + table + octets[at + 4 :]
    if name == "connection.start":
        with_table = b"\0\0" + struct.pack(">I", len(table)) + table + b"\0" * 8
    with pytest.raises(WireFault, match=rf"^{name}: "):
        decode_arguments(method(name), with_table)
    check_cannot_decode(name, with_table + b"\0")


def test_a_table_longer_than_the_arguments_cannot_be_decoded() -> None:
    octets = arguments(encode_method(1, INDEX["queue.declare"], 0, "q", *[False] * 5, ()))
    check_cannot_decode("queue.declare", octets[:-4] + struct.pack(">I", 1))


def test_of_bad_text_and_a_bad_table_the_first_counts() -> None:
    octets = b"\0\0\x01\xff\0" + struct.pack(">I", 4) + b"\x01aZ\0"
    assert refusal("queue.declare", octets).explanation == "Malformed UTF-8 in shortstr"


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=examples(40))
@given(octets=st.binary(max_size=60))
def test_any_bytes_are_arguments_or_refused(name: str, octets: bytes) -> None:
    try:
        values = decode_arguments(method(name), octets)
    except (ConnectionFault, WireFault):
        return
    assert decode_arguments(method(name), arguments(encode_method(1, INDEX[name], *values))) == values


@given(value=field_values())
def test_tables_in_arguments_keep_their_types(value: Any) -> None:
    values = (0, "q", False, False, False, False, False, (("k", value),))
    octets = arguments(encode_method(1, INDEX["queue.declare"], *values))
    assert decode_arguments(method("queue.declare"), octets) == values
