"""What a node of a cluster is told, and whom it asks to open and close the broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from leveret.broker.replication.link import Dial, Link, dial
from leveret.broker.replication.shipping import Limits, Shipping
from leveret.storage.disk.recording import Operations


class ReplicationError(RuntimeError):
    """This node cannot do what it should in the cluster; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is told by its configuration.

    Attributes:
        name: Its name in the cluster.
        root: The data directory.
        address: Host and port at which the others reach its replication port.
        secret: The shared secret; empty without one.
        lease: Seconds of the leader's lease.
        limits: Limits.
        backlog: Bytes of frames that are kept.
        server_tls, client_tls: Encrypt the links; None for no encryption.
        is_observer: Whether it has a copy that nobody waits for, and leads by hand only.
        figures: Returns the node's use of resources, for JSON; may block.
        dial: Opens connections to other nodes.
        backups: Where this node can take backups that others can go on with; "" if it cannot.
        has_backups: Whether the leader has backups taken, by itself at least.
    """

    name: str
    root: Path
    address: str
    secret: str
    lease: float
    limits: Limits
    backlog: int
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    is_observer: bool = False
    figures: Callable[[], dict[str, Any]] = dict
    dial: Dial = dial
    backups: str = ""
    has_backups: bool = False


class Host(Protocol):
    """What opens and closes the broker. Its methods are called in the event loop of replication."""

    async def lead(self, shipping: Shipping, operations: Operations, epoch: int) -> None:
        """Open the broker on the data directory, and serve clients.

        Raises:
            ReplicationError: It cannot be opened.
        """

    async def stop_leading(self, is_clean: bool, reason: str) -> None:
        """Close the broker.

        Args:
            is_clean: Whether everything is to be written; otherwise this node does not lead any more.
            reason: Why, for the log.
        """

    async def stand_by(self, leader: str, address: str) -> None:
        """Forward clients to the leader.

        Args:
            leader: Its name; "" if there is none.
            address: Host and port of its replication port.
        """

    def set_enough_copies(self, enough: bool) -> None:
        """Block publishers unless there are enough copies."""

    async def take_backups(self, turn: str) -> None:
        """Take backups on this node, or end that.

        Args:
            turn: The leader's choice, `EPOCH/NUMBER/NODE`; "" to end.
        """

    def note_backup(self, node: str, line: bytes) -> None:
        """Note what the program that takes backups has said, on a leader.

        Args:
            node: Name of the node that it runs on.
            line: A JSON object.
        """

    async def forward(self, link: Link, wish: dict[str, Any]) -> None:
        """Serve a client whose connection another node forwards, until it ends."""
