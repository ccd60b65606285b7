"""Listening sockets that outlive a broker: of a node whose role changes, or of a broker that tests reset or kill."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from leveret.broker.addresses import Address
from leveret.broker.app import bind_planned
from leveret.broker.config.listening import PlannedListener

#: Name, host and port of a planned listener, and how many equal ones precede it.
_Key: TypeAlias = tuple[str, str, int, int]
#: Seconds for the closed sockets of a killed broker to free their ports.
_PORT_SECONDS: Final = 5.0
_PAUSE: Final = 0.001


@dataclass(slots=True)
class _Listener:
    """The sockets of a planned listener, which listen unless the ports are shut, and their addresses at first."""

    sockets: list[socket.socket]
    addresses: list[tuple[socket.AddressFamily, Address]] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = [(socket.AddressFamily(each.family), each.getsockname()[:2]) for each in self.sockets]


class Ports:
    """Listening sockets by planned listener.

    While the broker is reset they listen on, and who connects meanwhile is served afterwards. While it is dead nobody
    listens, so clients are refused; sockets that are bound to the ports keep them from other programs.
    """

    def __init__(self) -> None:
        self._listeners: dict[_Key, _Listener] = {}
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def rewind(self) -> None:
        """Begin with the first listener again: another broker begins to listen."""
        self._counts.clear()

    def bind(self, planned: PlannedListener, port: int, backlog: int) -> list[socket.socket]:
        """Return listening sockets for a listener, on the ports that it had before; the caller closes them.

        Raises:
            OSError: The address cannot be used.
        """
        name, host, wanted = planned.name, planned.endpoint.host, planned.endpoint.port
        key = name, host, wanted, self._counts[name, host, wanted]
        self._counts[name, host, wanted] += 1
        found = self._listeners.get(key)
        if found is None:
            found = self._listeners[key] = _Listener(bind_planned(planned, port, backlog))
        elif not _listens(found):
            for each in found.sockets:
                each.close()
            found.sockets = [
                socket.create_server(address, family=family, backlog=backlog) for family, address in found.addresses
            ]
        return [each.dup() for each in found.sockets]

    async def shut(self) -> None:
        """Refuse clients, and keep the ports.

        Raises:
            OSError: A port cannot be kept.
        """
        for each in self._listeners.values():
            if _listens(each):
                for sock in each.sockets:
                    sock.close()
                each.sockets = [await _reserve(family, address) for family, address in each.addresses]

    def close(self) -> None:
        """Give the ports up."""
        for each in self._listeners.values():
            for sock in each.sockets:
                sock.close()
        self._listeners.clear()


def _listens(listener: _Listener) -> bool:
    return all(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for each in listener.sockets)


async def _reserve(family: socket.AddressFamily, address: Address) -> socket.socket:
    """Return a socket that is bound to an address and does not listen.

    The event loop may close a listening socket of the address a moment later.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PORT_SECONDS
    while True:
        reserved = socket.socket(family)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind(address)
        except OSError:
            reserved.close()
            if loop.time() > deadline:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return reserved
