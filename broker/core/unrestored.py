"""Definitions that a start could not restore: they stay on disk, with their messages, until somebody deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.protocol.faults import not_found
from leveret.storage.definitions import Key

if TYPE_CHECKING:
    from leveret.broker.core.durable import DurableRecorder
    from leveret.broker.core.message_storage import MessageStorage


class Unrestored:
    """What of one virtual host could not be restored.

    Args:
        vhost_name: The virtual host.
        recorder: Its journal has the definitions.
        storage: Has the messages of its queues.
    """

    __slots__ = ("_reasons", "_recorder", "_storage", "_vhost_name")

    def __init__(self, vhost_name: str, recorder: DurableRecorder, storage: MessageStorage) -> None:
        self._vhost_name = vhost_name
        self._recorder = recorder
        self._storage = storage
        #: Why, by kind and key.
        self._reasons: dict[tuple[str, Key], str] = {}

    def add(self, kind: str, key: Key, reason: str) -> None:
        """Note a definition that stays as it is.

        Args:
            kind: Kind in the database, such as ``queue``.
            key: Key in the database; the virtual host comes first.
            reason: Why it could not be restored.
        """
        self._reasons[kind, key] = reason

    def refuse(self, kind: str, name: str) -> None:
        """Refuse to declare again what is still on disk: its messages would be lost.

        Args:
            kind: ``queue`` or ``exchange``.
            name: Its name.
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
        """Whether something of that name could not be restored."""
        return (kind, (self._vhost_name, name)) in self._reasons

    def delete(self, kind: str, name: str) -> bool:
        """Delete what could not be restored, with its bindings and messages; return whether there was such a thing.

        Args:
            kind: ``queue``, ``exchange``, ``policy`` or ``operator_policy``.
            name: Its name.
        """
        if not self.has(kind, name):
            return False
        self._forget(kind, (self._vhost_name, name))
        if kind == "queue":
            self._storage.delete_kept(self._vhost_name, name)
        self.delete_bindings(kind, name)
        return True

    def delete_bindings(self, kind: str, name: str) -> None:
        """Delete the bindings that could not be restored of a queue or exchange that is deleted."""
        for each in list(self._bindings_of(kind, name)):
            self._forget("binding", each)

    def delete_all(self) -> None:
        """Delete everything: the virtual host is deleted."""
        for kind, key in list(self._reasons):
            self._forget(kind, key)
            if kind == "queue":
                self._storage.delete_kept(*key[:2])

    def _bindings_of(self, kind: str, name: str) -> Iterator[Key]:
        for each, key in self._reasons:
            # Of other length if it is not ours.
            if each == "binding" and len(key) == 6:
                _, source, destination_type, destination, *_ = key
                if (destination_type, destination) == (kind, name) or (kind == "exchange" and source == name):
                    yield key

    def _forget(self, kind: str, key: Key) -> None:
        del self._reasons[kind, key]
        self._recorder.journal.delete(kind, key)
