"""Messages between two nodes: one that is damaged is refused."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from leveret.broker.replication.link import Link, LinkError, Message


class Writer:
    """Takes what is written."""

    def __init__(self) -> None:
        self.octets = b""

    def is_closing(self) -> bool:
        return False

    def write(self, octets: bytes) -> None:
        self.octets += octets


async def receive(octets: bytes) -> tuple[Message, bytes]:
    """Return the message that bytes are, after which the connection ends."""
    reader = asyncio.StreamReader()
    reader.feed_data(octets)
    reader.feed_eof()
    return await Link(reader, cast(Any, None)).receive()


@pytest.mark.parametrize("kind", [Message.DATA, Message.ACKNOWLEDGEMENT, Message.END])
async def test_each_flipped_bit_is_found(kind: Message) -> None:
    writer, body = Writer(), b"" if kind is Message.END else b"12345678"
    Link(cast(Any, None), cast(Any, writer)).send(kind, body)
    assert await receive(writer.octets) == (kind, body)
    for bit in range(8 * len(writer.octets)):
        octets = bytearray(writer.octets)
        octets[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LinkError, match="damaged"):
            await receive(bytes(octets))
