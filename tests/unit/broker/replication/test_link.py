"""Messages between two nodes: one that is damaged is refused."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from leveret.broker.replication.link import Link, LinkError, Message, accept, answer, connect


async def test_links_notice_that_a_machine_has_vanished() -> None:
    options: list[int] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        wish = await accept(link, "secret", False)
        answer(link, "secret", wish, {})
        options.append(writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        await link.drain()
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    link, _ = await connect("127.0.0.1", server.sockets[0].getsockname()[1], "secret", {})
    ours = link.writer.get_extra_info("socket")
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
    with pytest.raises(EOFError):
        await link.receive()
    assert options[0]
    link.close()
    server.close()


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
