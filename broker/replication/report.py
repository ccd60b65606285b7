"""What people see of replication: `/api/replication`, `leveretctl replication_status`, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from leveret.broker.replication.roles import Member

#: Metrics of a node: name, help, and the field of the report.
METRICS: Final = (
    ("role", "Whether this node is the leader (1) or a standby (0)", "is_leader"),
    ("epoch", "Number of the leader's term", "epoch"),
    ("in_sync", "Whether this node is in the in-sync set", "is_in_sync"),
    ("copies", "Number of nodes in the in-sync set", "copies"),
    ("operation", "Number of the last operation on this node's disk", "operation"),
    ("lag_operations", "Number of operations that the standby that is furthest behind has not acknowledged", "lag"),
)


def report(name: str, member: Member | None) -> dict[str, Any]:
    """Return what is known of a node's replication, for JSON. Any thread.

    Args:
        name: Its name.
        member: The node; None before it has started.
    """
    state = None if member is None else member.state
    if member is None or state is None:
        return {"node": name, "role": "starting", "is_leader": False}
    shipping, following = member.shipping, member.following
    operation = shipping.operation if shipping is not None else following.number if following is not None else 0
    nodes: list[dict[str, Any]] = [
        {
            "name": each.name,
            "in_sync": each.name in state.in_sync,
            "state": each.doing,
            "operation": each.acknowledged,
            "lag_operations": max(0, operation - each.acknowledged),
            "copy_bytes_sent": each.sent,
            "copy_bytes": each.to_send,
        }
        for each in ([] if shipping is None else [*shipping.standbys.values()])
    ]
    return {
        "node": name,
        "role": member.role,
        "is_leader": member.role == "leader",
        "is_in_sync": name in state.in_sync,
        "epoch": state.epoch,
        "leader": state.leader,
        "in_sync": list(state.in_sync),
        "copies": len(state.in_sync),
        "operation": operation,
        "lag": max((each["lag_operations"] for each in nodes if each["in_sync"]), default=0),
        "copy_bytes_received": 0 if following is None else following.received,
        "copy_bytes": 0 if following is None else following.to_receive,
        "standbys": nodes,
    }


def metrics(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the metrics of a report as lines of Prometheus's text format."""
    for name, text, field in METRICS:
        if field in told:
            full = f"leveret_replication_{name}"
            yield f"# TYPE {full} gauge\n# HELP {full} {text}\n{full} {int(told[field])}\n"
