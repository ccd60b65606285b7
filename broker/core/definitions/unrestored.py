"""Definitions that could not be restored at start: they remain on disk, with their messages, until deleted."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.core.definitions.durable import DurableRecorder
from leveret.broker.core.message_stores.registry import MessageStores
from leveret.protocol.faults import not_found
from leveret.storage.definitions_database import Key


class Unrestored:
    """Definitions of one virtual host that could not be restored.

    Args:
        vhost_name: Name of the virtual host.
        recorder: Its journal contains the definitions.
        stores: The message stores of the queues.
    """

    __slots__ = ("_reasons", "_recorder", "_stores", "_vhost_name")

    def __init__(self, vhost_name: str, recorder: DurableRecorder, stores: MessageStores) -> None:
        self._vhost_name = vhost_name
        self._recorder = recorder
        self._stores = stores
        #: Reasons by kind and key.
        self._reasons: dict[tuple[str, Key], str] = {}

    def add(self, kind: str, key: Key, reason: str) -> None:
        """Add a definition that could not be restored.

        Args:
            kind: Kind in the database, such as ``queue``.
            key: Key in the database; the virtual host comes first.
            reason: Why it could not be restored.
        """
        self._reasons[kind, key] = reason

    def refuse(self, kind: str, name: str) -> None:
        """Refuse to declare a queue or exchange that is still on disk, because its messages would be lost.

        Args:
            kind: ``queue`` or ``exchange``.
            name: Name of the queue or exchange.
        Raises:
            ChannelFault: NOT_FOUND (404), as for a queue that RabbitMQ knows and cannot reach.
        """
        reason = self._reasons.get((kind, (self._vhost_name, name)))
        if reason is not None:
            raise not_found(
                f"{kind} '{name}' in vhost '{self._vhost_name}' could not be restored: {reason}; delete it to declare"
                " it again"
            )

    def has(self, kind: str, name: str) -> bool:
        """Check whether a definition could not be restored."""
        return (kind, (self._vhost_name, name)) in self._reasons

    def delete(self, kind: str, name: str) -> bool:
        """Delete an unrestored definition with its bindings and messages; return whether it existed.

        Args:
            kind: ``queue``, ``exchange``, ``policy`` or ``operator_policy``.
            name: Name of the queue, exchange or policy.
        """
        if not self.has(kind, name):
            return False
        self._forget(kind, (self._vhost_name, name))
        if kind in ("queue", "exchange"):
            self._stores.delete_unrestored(self._vhost_name, name, kind)
        self.delete_bindings(kind, name)
        return True

    def delete_bindings(self, kind: str, name: str) -> None:
        """Delete the unrestored bindings of a queue or exchange that is deleted."""
        for each in list(self._bindings_of(kind, name)):
            self._forget("binding", each)

    def delete_all(self) -> None:
        """Delete all of them, because the virtual host is deleted."""
        for kind, key in list(self._reasons):
            self._forget(kind, key)
            if kind in ("queue", "exchange"):
                self._stores.delete_unrestored(key[0], key[1], kind)

    def _bindings_of(self, kind: str, name: str) -> Iterator[Key]:
        for each, key in self._reasons:
            # A damaged key may have another length.
            if each == "binding" and len(key) == 6:
                _, source, destination_type, destination, *_ = key
                if (destination_type, destination) == (kind, name) or (kind == "exchange" and source == name):
                    yield key

    def _forget(self, kind: str, key: Key) -> None:
        del self._reasons[kind, key]
        self._recorder.journal.delete(kind, key)
