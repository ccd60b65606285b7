"""What is passed on between two connections."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from leveret.broker.replication.forwarding import relay


@pytest.mark.parametrize("is_end", [True, False], ids=["end", "bytes"])
def test_what_meets_a_closed_connection_ends_both(is_end: bool) -> None:
    async def work() -> None:
        (one, client), (other, broker) = socket.socketpair(), socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=one)
        other_reader, other_writer = await asyncio.open_connection(sock=other)
        if is_end:
            client.shutdown(socket.SHUT_WR)
        else:
            client.sendall(b"bytes")
        other_writer.transport.abort()
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await relay(reader, writer, other_reader, other_writer)
        client.setblocking(True)
        client.settimeout(30)
        assert client.recv(1) == b""
        client.close()
        broker.close()

    uvloop.run(work())
