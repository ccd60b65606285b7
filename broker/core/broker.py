"""The broker's state as a whole: virtual hosts, alarms, and who is connected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sized
from typing import Protocol

from broker.core.alarms import Alarms
from broker.core.timers import Timers
from broker.core.turn import Turn
from broker.core.vhost import VirtualHost
from protocol.faults import AmqpFault
from protocol.field_table import FieldTable
from storage.definitions import Journal, NoJournal


class ClientConnection(Protocol):
    """An open connection, as the rest of the broker sees it.

    Attributes:
        username: Who is logged in.
        vhost_name: The virtual host it has opened.
        name: Address and port of the client, an arrow, those of the broker.
        client_properties: As the client sent them.
        channel_max: Channels it may have open at once.
        frame_max: Largest frame in bytes.
        channels: Those it has open.
    """

    username: str
    vhost_name: str
    name: str
    client_properties: FieldTable
    channel_max: int
    frame_max: int

    @property
    def channels(self) -> Sized:
        """Its open channels."""

    def terminate(self, fault: AmqpFault) -> None:
        """Close it with this reason."""


class Broker:
    """Everything that lives in the broker's memory.

    Args:
        turn: Ends the turns of the event loop.
        timers: The clock.
        trust_publishers: An x-death header that a publisher made up counts as the broker's own.

    Attributes:
        vhosts: By name.
        alarms: Resource alarms.
        connections: All that have opened a virtual host.
        user_connections: Open connections by user name.
        user_channels: Open channels by user name.
        channel_count: Open channels in all.
    """

    def __init__(self, turn: Turn, timers: Timers, trust_publishers: bool = False) -> None:
        self.turn = turn
        self.timers = timers
        self._trust_publishers = trust_publishers
        self._journal: Journal = NoJournal()
        self.vhosts: dict[str, VirtualHost] = {}
        self.alarms = Alarms()
        self.connections: set[ClientConnection] = set()
        self.user_connections: Counter[str] = Counter()
        self.user_channels: Counter[str] = Counter()
        self.channel_count = 0

    def add_vhost(self, name: str) -> VirtualHost:
        """Make a virtual host, or return the one that is there."""
        if name not in self.vhosts:
            vhost = self.vhosts[name] = VirtualHost(name, self.turn, self.timers, self._trust_publishers)
            vhost.recorder.journal = self._journal
            self.save_vhost(vhost)
        return self.vhosts[name]

    def save_vhost(self, vhost: VirtualHost) -> None:
        """Keep a virtual host and its limits."""
        limits = {"max_connections": vhost.max_connections, "max_queues": vhost.max_queues}
        self._journal.put("vhost", (vhost.name,), limits)

    def record_to(self, journal: Journal) -> None:
        """Write all changes of definitions into a journal from now on."""
        self._journal = journal
        for vhost in self.vhosts.values():
            vhost.recorder.journal = journal

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its queues; its connections have been closed."""
        vhost = self.vhosts.pop(name)
        vhost.end()
        self._journal.delete("vhost", (name,))

    def register(self, connection: ClientConnection) -> None:
        """Count a connection that has opened its virtual host."""
        self.connections.add(connection)
        self.user_connections[connection.username] += 1
        self.vhosts[connection.vhost_name].connection_count += 1

    def unregister(self, connection: ClientConnection) -> None:
        """Count a connection no more."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self.user_connections[connection.username] -= 1
        vhost = self.vhosts.get(connection.vhost_name)
        if vhost is not None:
            vhost.connection_count -= 1
