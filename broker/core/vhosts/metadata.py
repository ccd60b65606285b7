"""Metadata of virtual hosts: description, tags, tracing and default queue type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leveret.policies.policy_keys import QUEUE_TYPES
from leveret.protocol.field_table import FieldTable, find, longstr


@dataclass(frozen=True, slots=True)
class VirtualHostMetadata:
    """Immutable metadata of a virtual host.

    Args:
        description: A description for operators.
        tags: Tags for operators and their tools.
        tracing: Whether published and delivered messages are copied to the trace exchange.
        default_queue_type: Type of durable queues that are declared without one; None for classic.
    """

    description: str = ""
    tags: tuple[str, ...] = ()
    tracing: bool = False
    default_queue_type: str | None = None

    def add_default_queue_type(self, arguments: FieldTable, durable: bool, temporary: bool) -> FieldTable:
        """Return the arguments of a queue declaration, with the default queue type if they have none.

        Args:
            arguments: Arguments as received.
            durable: The durable bit.
            temporary: Whether the queue is exclusive or auto-delete, which only classic queues can be.
        """
        default = self.default_queue_type
        if default is None or default == "classic" or not durable or temporary:
            return arguments
        if find(arguments, "x-queue-type") is not None:
            return arguments
        return (*arguments, ("x-queue-type", longstr(default)))


def metadata_to_json(metadata: VirtualHostMetadata) -> dict[str, Any]:
    """Convert metadata to a JSON object."""
    return {**asdict(metadata), "tags": list(metadata.tags)}


def metadata_from_json(document: Mapping[str, Any]) -> VirtualHostMetadata:
    """Read metadata from metadata_to_json(); missing keys get their defaults."""
    return VirtualHostMetadata(
        document.get("description", ""),
        tuple(document.get("tags", ())),
        document.get("tracing", False),
        document.get("default_queue_type"),
    )


class InvalidMetadata(ValueError):
    """Invalid metadata in a request.

    Args:
        reason: RabbitMQ's answer, as JSON.
    """

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


def read_metadata(document: Mapping[str, Any], known: VirtualHostMetadata) -> VirtualHostMetadata:
    """Read metadata from a request or a definitions document.

    As in RabbitMQ, description and tags are always replaced, and cleared if absent. Tracing and the default queue type
    are kept if absent. Keys in the object ``metadata`` are used unless they are also outside of it.

    Args:
        document: The JSON object.
        known: The current metadata.
    Raises:
        InvalidMetadata: A value is wrong.
    """
    inner = document.get("metadata")
    merged = {**(inner if isinstance(inner, Mapping) else {}), **document}
    description = merged.get("description") or ""
    tracing = merged.get("tracing", known.tracing)
    if tracing in ("true", "false"):
        tracing = tracing == "true"
    if not isinstance(tracing, bool):
        raise InvalidMetadata(["not_boolean", tracing])
    # 3.10.8 itself reads only a misspelled key; its tools send the right one.
    default = merged.get("default_queue_type", merged.get("defaultqueuetype", known.default_queue_type))
    if default in (None, "", "undefined"):
        default = None
    elif not isinstance(default, str) or default not in QUEUE_TYPES:
        raise InvalidMetadata(f"Unsupported queue type '{default}'")
    if not isinstance(description, str):
        description = json.dumps(description)
    return VirtualHostMetadata(description, _read_tags(merged.get("tags") or ()), tracing, default)


def _read_tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str):
        tags = tags.split(",")
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidMetadata("tags must be a list of strings, or one string with commas")
    return tuple(tag.strip() for tag in tags if tag.strip())
