"""The base class of exchange types that choose one destination for each message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from leveret.broker.core.exchanges.base import Destination, Exchange
from leveret.protocol.field_table import FieldTable


class ChoosingExchange(Exchange):
    """An exchange that chooses destinations by all of a message, not for each of its routing keys."""

    __slots__ = ()

    @abstractmethod
    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Choose a destination; see Exchange.find()."""

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Choose a destination for a message with one routing key and without properties."""
        return self.find((routing_key,), headers, b"")
