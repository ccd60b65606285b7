from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.session.handshake import MECHANISMS, Credentials, MalformedResponse, read_amqplain, read_plain
from leveret.protocol.field_table import FieldValue, encode_table, longstr
from tests.support.amqp_strategies import tables

WITHOUT_NUL = st.binary(max_size=40).map(lambda octets: octets.replace(b"\0", b""))


def test_mechanisms() -> None:
    # Names are case-sensitive.
    assert {"PLAIN": read_plain, "AMQPLAIN": read_amqplain} == MECHANISMS


@given(user=WITHOUT_NUL, password=WITHOUT_NUL)
def test_plain(user: bytes, password: bytes) -> None:
    credentials = read_plain(b"\0" + user + b"\0" + password)
    assert credentials == Credentials(user.decode("utf-8", "surrogateescape"), password)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\0",
        b"guest",
        b"\0guest",
        b"guest\0guest",
        b"guest\0guest\0guest",
        b"\0guest\0guest\0",
        b"\0\0guest\0guest",
    ],
)
def test_other_forms_of_plain_are_refused(response: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read_plain(response)


@given(
    user=st.binary(max_size=40),
    password=st.binary(max_size=40),
    others=tables(),
    kinds=st.sampled_from(("SS", "Sx", "xS")),
)
def test_amqplain(user: bytes, password: bytes, others: object, kinds: str) -> None:
    assert isinstance(others, tuple)
    table = (("LOGIN", FieldValue(kinds[0], user)), *others, ("PASSWORD", FieldValue(kinds[1], password)))
    if any(key in ("LOGIN", "PASSWORD") for key, _ in others):
        return
    credentials = read_amqplain(encode_table(table))
    assert credentials == Credentials(user.decode("utf-8", "surrogateescape"), password)


LOGIN, PASSWORD = ("LOGIN", longstr("guest")), ("PASSWORD", longstr("guest"))


@pytest.mark.parametrize(
    "response",
    [
        b"",
        encode_table((LOGIN,)),
        encode_table((PASSWORD,)),
        encode_table((("login", LOGIN[1]), ("password", PASSWORD[1]))),
        encode_table((LOGIN, ("PASSWORD", FieldValue("I", 1)))),
        encode_table((("LOGIN", FieldValue("V", None)), PASSWORD)),
        struct.pack(">I", len(encode_table((LOGIN, PASSWORD)))) + encode_table((LOGIN, PASSWORD)),
        encode_table((LOGIN, PASSWORD))[:-1],
        b"\0guest\0guest",
    ],
)
def test_other_forms_of_amqplain_are_refused(response: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read_amqplain(response)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(response=st.binary(max_size=60))
def test_any_response_is_read_or_refused(mechanism: str, response: bytes) -> None:
    try:
        credentials = MECHANISMS[mechanism](response)
    except MalformedResponse:
        return
    assert credentials.username.encode("utf-8", "surrogateescape") in response
    assert credentials.password in response
