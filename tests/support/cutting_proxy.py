"""Connections between the nodes of a cluster, and to its register, that a test can cut and damage.

Each node has a port here that leads to its replication port, and a port that leads to etcd. Who has connected to a
replication port is known by the node's name in its handshake. A cut holds bytes back, in one direction or both, as a
network does that loses packets: nobody sees an end.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

REGISTER: Final = "register"
_PIECE: Final = 64 << 10
_SECONDS: Final = 30.0
_NAME: Final = re.compile(rb'"node": "([^"]+)"')
_FOLLOWS: Final = b'"purpose": "follow"'


@dataclass(eq=False)
class _Pair:
    """A connection and the one that it leads to."""

    source: str
    target: str
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    follows: bool = False


class CuttingProxy:
    """Ports that lead to others; a context manager that closes them. Any thread.

    Attributes:
        damages: How often something was damaged.
        carried: How many bytes were sent, by sender and receiver.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cut: set[tuple[str, str]] = set()
        self._healed = asyncio.Event()
        #: What is damaged next: the sender and the receiver.
        self._damaged: set[tuple[str, str]] = set()
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.damages = 0
        self.carried: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    def lead_to(self, target: str, port: int, source: str = "") -> int:
        """Return a port that leads to another.

        Args:
            target: Name of whoever listens there.
            port: Its port.
            source: Name of who will connect; "" for whatever a handshake says.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._serve(_Pair(source, target), reader, writer, port)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                self._tasks.discard(task)

        async def listen() -> int:
            server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_PIECE)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(_SECONDS)

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Hold back what one sends to the other, and what it gets from it unless the cut is one-way."""
        self._call(lambda: self._cut.update([(source, target), *([] if one_way else [(target, source)])]))

    def heal(self, *, reset: bool = False) -> None:
        """Let everything through again; or end the connections that were cut, as systems do in the end."""

        def heal() -> None:
            for pair in [*self._pairs]:
                if reset and {(pair.source, pair.target), (pair.target, pair.source)} & self._cut:
                    for writer in pair.writers:
                        writer.transport.abort()
            self._cut.clear()
            self._healed.set()
            self._healed = asyncio.Event()

        self._call(heal)

    def damage(self, source: str, target: str) -> None:
        """Flip a bit in the next bytes that a leader sends to a node that follows it."""
        self._call(lambda: self._damaged.add((source, target)))

    def _call(self, what: Callable[[], object]) -> None:
        """Do something in the event loop, and wait for it."""

        async def call() -> None:
            what()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(_SECONDS)

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        pair.writers.append(writer)
        self._pairs.add(pair)
        pumps: list[asyncio.Task[None]] = []
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port, limit=_PIECE)
            pair.writers.append(other_writer)
            pumps = [
                asyncio.create_task(self._pump(pair, reader, other_writer, True)),
                asyncio.create_task(self._pump(pair, other_reader, writer, False)),
            ]
            # The end of one direction may be the end of a request alone.
            await asyncio.gather(*pumps)
        finally:
            self._pairs.discard(pair)
            for pump in pumps:
                pump.cancel()
            for each in pair.writers:
                each.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_request: bool
    ) -> None:
        while octets := await reader.read(_PIECE):
            if is_request and not pair.source and (found := _NAME.search(octets)) is not None:
                pair.source, pair.follows = found[1].decode(), _FOLLOWS in octets
            way = (pair.source, pair.target) if is_request else (pair.target, pair.source)
            self.carried[way] += len(octets)
            while way in self._cut:
                await self._healed.wait()
            if not is_request and pair.follows and way in self._damaged:
                self._damaged.discard(way)
                self.damages += 1
                middle = len(octets) // 2
                octets = octets[:middle] + bytes([octets[middle] ^ 0x10]) + octets[middle + 1 :]
            writer.write(octets)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
