"""Shovels as JSON, as RabbitMQ's plugin shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.broker.shovels.shovels import RunningShovel


def shovel_document(shovel: RunningShovel, node: str) -> dict[str, Any]:
    """Return a shovel. Where it takes messages from and puts them is known while it is running."""
    progress, definition = shovel.progress, shovel.definition
    document: dict[str, Any] = {
        "node": node,
        "timestamp": datetime.fromtimestamp(progress.since // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "name": shovel.name,
        **({} if shovel.vhost is None else {"vhost": shovel.vhost}),
        "type": "static" if shovel.vhost is None else "dynamic",
        "state": progress.state,
    }
    if progress.reason:
        document["reason"] = progress.reason
    if progress.state == "running":
        document |= {
            "src_uri": progress.source,
            "src_protocol": "amqp091",
            "dest_protocol": "amqp091",
            "dest_uri": progress.destination,
            **definition.source.named("src", "_"),
            **definition.destination.named("dest", "_"),
        }
    document |= {"forwarded": progress.forwarded, "pending": progress.pending}
    if progress.remaining is not None:
        document["remaining"] = progress.remaining
    return document
