"""What is said about a virtual host, beside what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leveret.policies.arguments import QUEUE_TYPES
from leveret.protocol.field_table import FieldTable, find, longstr


@dataclass(frozen=True, slots=True)
class VirtualHostMetadata:
    """Description and the like; a change makes a new object.

    Args:
        description: For people.
        tags: For people and their tools.
        tracing: Whether what is published and delivered is copied to the trace exchange.
        default_queue_type: What a durable queue is that names no type; None for classic.
    """

    description: str = ""
    tags: tuple[str, ...] = ()
    tracing: bool = False
    default_queue_type: str | None = None

    def complete(self, arguments: FieldTable, durable: bool, temporary: bool) -> FieldTable:
        """Arguments of a queue declaration, with the default queue type where none is named.

        Args:
            arguments: As they came.
            durable: The durable bit.
            temporary: The queue is exclusive or deletes itself, which only classic queues can.
        """
        default = self.default_queue_type
        if default is None or default == "classic" or not durable or temporary:
            return arguments
        if find(arguments, "x-queue-type") is not None:
            return arguments
        return (*arguments, ("x-queue-type", longstr(default)))


def metadata_to_json(metadata: VirtualHostMetadata) -> dict[str, Any]:
    """Metadata as JSON can hold it."""
    return {**asdict(metadata), "tags": list(metadata.tags)}


def metadata_from_json(document: Mapping[str, Any]) -> VirtualHostMetadata:
    """What metadata_to_json() was given; what is missing is at its default."""
    return VirtualHostMetadata(
        document.get("description", ""),
        tuple(document.get("tags", ())),
        document.get("tracing", False),
        document.get("default_queue_type"),
    )


class InvalidMetadata(ValueError):
    """A request for metadata that cannot be.

    Args:
        reason: What RabbitMQ answers, as JSON.
    """

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


def read_metadata(document: Mapping[str, Any], known: VirtualHostMetadata) -> VirtualHostMetadata:
    """Read metadata out of a request or a definitions document.

    As in RabbitMQ a request replaces description and tags, also by nothing; tracing and the default queue type stay
    as they are unless they are named. What stands in the object ``metadata`` counts where nothing stands outside.

    Args:
        document: The JSON object.
        known: What there was.
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
    # 3.10.8 knows the key by a mistaken name only; its tools send the right one.
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
