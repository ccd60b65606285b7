"""What people see of replication: `/api/replication`, `/api/nodes`, `leveretctl replication_status`, metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from leveret.broker.core.counters.counters import NodeStatistics
from leveret.broker.core.node import NODE_PREFIX
from leveret.broker.core.resources.sockets import open_files_max
from leveret.broker.replication.lag import Lag
from leveret.broker.replication.plan import Plan
from leveret.broker.replication.register import State
from leveret.broker.replication.roles import Member
from leveret.broker.replication.shipping import Shipping, Standby
from leveret.broker.version import RABBITMQ_VERSION

_WHO: Final = (
    "the standby in sync that is furthest behind has not acknowledged; on others, that this node does not have yet"
)
#: Metrics of a node: name, help, and the field of the report.
METRICS: Final = (
    ("role", "Whether this node is the leader (1) or not (0)", "is_leader"),
    ("observer", "Whether this node is an observer (1) or not (0)", "is_observer"),
    ("epoch", "Number of the leader's term", "epoch"),
    ("in_sync", "Whether this node is in the in-sync set", "is_in_sync"),
    ("copies", "Number of nodes in the in-sync set", "copies"),
    ("min_copies", "Number of nodes that must be in the in-sync set, or publishers are blocked", "min_copies"),
    ("operation", "Number of the last operation on this node's disk", "operation"),
    ("lag_operations", f"Number of operations that {_WHO}", "lag_operations"),
    ("lag_bytes", f"Bytes of operations that {_WHO}", "lag_bytes"),
    ("lag_seconds", f"Seconds since the first operation that {_WHO}", "lag_seconds"),
)
#: Metrics that a leader has for each other node: name, help, and the field of the node in the report.
NODE_METRICS: Final = (
    ("node_connected", "Whether a node is connected to the leader", "is_connected"),
    ("node_observer", "Whether a node is an observer (1) or a standby (0)", "is_observer"),
    ("node_in_sync", "Whether a node is in the in-sync set", "in_sync"),
    ("node_lag_operations", "Number of operations that a node has not acknowledged", "lag_operations"),
    ("node_lag_bytes", "Bytes of operations that a node has not acknowledged", "lag_bytes"),
    ("node_lag_seconds", "Seconds since the first operation that a node has not acknowledged", "lag_seconds"),
    ("node_copy_bytes", "Bytes of the copy that a node gets", "copy_bytes"),
    ("node_copy_sent_bytes", "Bytes of the copy that are sent", "copy_bytes_sent"),
)


def report(plan: Plan | None, member: Member | None) -> dict[str, Any]:
    """Return what is known of a node's replication, for JSON. Any thread.

    Args:
        plan: What its configuration says; None before it has started.
        member: The node; None before it has started.
    """
    state = None if member is None else member.state
    if plan is None or member is None or state is None:
        return {"node": "" if plan is None else plan.name, "role": "starting", "is_leader": False, "standbys": []}
    shipping, following = member.shipping, member.following
    nodes: list[dict[str, Any]] = []
    operation, lag = 0, Lag()
    if shipping is not None:
        operation = shipping.operation
        nodes = [_describe(each, shipping, state) for each in [*shipping.standbys.values()]]
        lag = max(
            (shipping.lag_of(each) for each in [*shipping.standbys.values()] if each.name in state.in_sync),
            key=lambda found: found.operations,
            default=Lag(),
        )
    elif following is not None:
        operation, lag = following.number, following.lag
    return {
        "node": plan.name,
        "role": member.role,
        "is_leader": member.role == "leader",
        "is_observer": member.role == "observer",
        "is_in_sync": plan.name in state.in_sync,
        "epoch": state.epoch,
        "leader": state.leader,
        "in_sync": list(state.in_sync),
        "copies": len(state.in_sync),
        "min_copies": plan.limits.min_copies,
        "operation": operation,
        **lag.document(),
        "is_connected": following is not None and following.is_connected,
        "copy_bytes_received": 0 if following is None else following.received,
        "copy_bytes": 0 if following is None else following.to_receive,
        "standbys": nodes,
    }


def _describe(each: Standby, shipping: Shipping, state: State) -> dict[str, Any]:
    """Return what a leader knows of another node; its lag is null if it has not been there since this one leads."""
    lag = shipping.lag_of(each).document()
    return {
        "name": each.name,
        "role": "observer" if each.is_observer else "standby",
        "is_observer": each.is_observer,
        "is_connected": each.link is not None,
        "in_sync": each.name in state.in_sync,
        "state": each.doing,
        "operation": each.acknowledged if each.is_known else None,
        **(lag if each.is_known else dict.fromkeys(lag)),
        "copy_bytes_sent": each.sent,
        "copy_bytes": each.to_send,
    }


def metrics(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the metrics of a report as lines of Prometheus's text format."""
    for name, text, field in METRICS:
        if field in told:
            full = f"leveret_replication_{name}"
            yield f"# TYPE {full} gauge\n# HELP {full} {text}\n{full} {float(told[field]):.16g}\n"
    for name, text, field in NODE_METRICS:
        full = f"leveret_replication_{name}"
        values = [(each["name"], each[field]) for each in told["standbys"] if each[field] is not None]
        if values:
            yield f"# TYPE {full} gauge\n# HELP {full} {text}\n"
        for node, value in values:
            label = node.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            yield f'{full}{{node="{label}"}} {float(value):.16g}\n'


def figures(data_dir: Path, memory_limit: int, uptime: int) -> dict[str, Any]:
    """Return what this node tells the leader, as fields of `/api/nodes`; may block.

    Args:
        data_dir: The data directory.
        memory_limit: Bytes of memory above which it would block publishers.
        uptime: Milliseconds since its start.
    """
    try:
        disk = os.statvfs(data_dir)
        disk_free = disk.f_bavail * disk.f_frsize
    except OSError:
        disk_free = 0
    row = NodeStatistics().row(0, disk_free)
    used: dict[str, Any] = {}
    for name, value in zip(NodeStatistics.FIELDS, row, strict=True):
        used |= {name: value, f"{name}_details": {"rate": 0.0}}
    return {
        "uptime": uptime,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count() or 1,
        "fd_total": open_files_max(),
        "mem_limit": memory_limit,
        "mem_alarm": False,
        "mem_calculation_strategy": "rss",
        "disk_free_alarm": False,
        "being_drained": False,
        "applications": [{"name": "rabbit", "description": "Leveret", "version": RABBITMQ_VERSION}],
        "db_dir": str(data_dir.absolute()),
        **used,
    }


def other_nodes(member: Member) -> list[dict[str, Any]]:
    """Return the other nodes of a leader's cluster as fields of `/api/nodes`. Any thread.

    Those that are away have their names and `"running": false` only, as in RabbitMQ.
    """
    state, shipping = member.state, member.shipping
    if state is None or shipping is None:
        return []
    found: list[dict[str, Any]] = []
    known = {**shipping.standbys}
    for name in sorted({*state.addresses, *known} - {state.leader}):
        each = known.get(name)
        is_running = each is not None and each.link is not None
        document: dict[str, Any] = {"name": f"{NODE_PREFIX}{name}", "type": "disc", "running": is_running}
        if each is not None and is_running:
            document |= each.figures
        found.append({"partitions": [], "cluster_links": [], **document})
    return found
