"""Capabilities in the client properties."""

from __future__ import annotations

from leveret.protocol.field_table import FieldTable, find


class Capabilities:
    """The client capabilities that the broker uses.

    Args:
        client_properties: Table of connection.start-ok; a ``capabilities`` entry that is not a table is ignored.
    """

    __slots__ = ("authentication_failure_close", "blocked", "consumer_cancel_notify")

    def __init__(self, client_properties: FieldTable = ()) -> None:
        field = find(client_properties, "capabilities")
        table: FieldTable = field.value if field is not None and field.kind == "F" else ()
        self.authentication_failure_close = _is_set(table, "authentication_failure_close")
        self.blocked = _is_set(table, "connection.blocked")
        self.consumer_cancel_notify = _is_set(table, "consumer_cancel_notify")


def _is_set(table: FieldTable, name: str) -> bool:
    field = find(table, name)
    return field is not None and field.kind == "t" and bool(field.value)
