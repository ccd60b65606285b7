"""Nodes that do not lead, as RabbitMQ's HTTP API shows nodes: their use of resources, which they tell the leader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from leveret.broker.core.counters.totals import NodeStatistics
from leveret.broker.core.node import NODE_PREFIX
from leveret.broker.core.resources.sockets import open_files_max
from leveret.broker.replication.roles import Member
from leveret.broker.version import RABBITMQ_VERSION


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
