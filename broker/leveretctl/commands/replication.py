"""The commands for a cluster of a leader and standbys. RabbitMQ has no such commands."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, command
from leveret.broker.leveretctl.command_errors import ApiFault, failed, refused
from leveret.broker.leveretctl.command_line import TIMEOUT, Argument, option
from leveret.broker.leveretctl.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import STANDBY

_COLUMNS: Final = table_columns(STANDBY)
_WAIT_SECONDS: Final = 30.0
_PAUSE: Final = 0.05


@command(
    (option("local", "ask the node itself, which may be a standby, rather than the leader"), TIMEOUT),
    banner="Status of replication ...",
)
def replication_status(context: CommandContext) -> Result:
    """Displays the leader, and the other nodes: who is in sync, and how far each is."""
    told = _ask(context, *(("local",) if context.flag("local") else ()))
    lines = [
        f"Node: {told['node']}, role: {told['role']}",
        f"Leader: {told.get('leader', '')}, epoch: {told.get('epoch', 0)}, operation: {told.get('operation', 0)}",
        f"In sync: {', '.join(told.get('in_sync', ())) or '(none)'}; needed: {told.get('min_copies', 1)}",
    ]
    if told["role"] in ("standby", "observer"):
        lines.append(
            f"Behind: {told['lag_operations']} operations, {told['lag_bytes']} bytes, {told['lag_seconds']} s;"
            f" connected: {str(told['is_connected']).lower()};"
            f" of a copy: {told['copy_bytes_received']} of {told['copy_bytes']} bytes"
        )
    rows = to_rows(_COLUMNS, tuple(_COLUMNS), told["standbys"]).rows
    lines += ["Other node: " + ", ".join(f"{name}: {value}" for name, value in row.items()) for row in rows]
    return Outcome("\n".join(lines), told)


@command(
    (Argument("[<node>]", "name of the node (replication.node); by default any that is in sync"), TIMEOUT),
    banner="Letting another node lead ...",
)
def failover(context: CommandContext, node: str = "") -> Result:
    """Lets another node of the in-sync set lead; clients are closed, and may connect again at once."""
    before = _ask(context)
    try:
        answer = context.api.post("replication", "failover", body={"node": node})
    except ApiFault as fault:
        raise failed(fault.reason) from fault
    wanted, deadline = answer["node"], time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            if _ask(context).get("epoch", 0) > before.get("epoch", 0):
                return Outcome(f"{wanted} leads", {"node": wanted, "result": "leads"})
        except Exception:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise failed(f"{wanted} does not lead after {_WAIT_SECONDS:g} s")
        time.sleep(_PAUSE)


@command(
    (option("offline", "has no effect"), Argument("<existing_cluster_member_node>", "name of the node"), TIMEOUT),
    banner="Removing node {0} from the cluster",
    of_leveret="forget_cluster_node",
)
def forget_cluster_node(context: CommandContext, node: str) -> None:
    """Removes a node from the cluster that is away and does not come back."""
    context.api.delete("replication", "nodes", node)


@command((option("force", "do it; otherwise only what may be missing is displayed"), TIMEOUT), of_leveret="promote")
def promote(context: CommandContext) -> Result:
    """Lets an observer, or a standby that is not in sync, lead when all others are lost; ask that node itself."""
    force = context.flag("force")
    answer = context.api.request("POST", ("replication", "promote"), query={"force": "true"} if force else {})
    missing = answer["missing"]
    known = f"{missing['operations']} operations that the last leader had told of"
    seconds = missing["seconds"]
    age = "its age is not known" if seconds is None else f"its last whole second was {seconds:.0f} s ago"
    text = f"Missing in this copy, which ends at operation {missing['operation']}: {known}, and all later ones; {age}."
    if not force:
        raise failed(f"{text}\nNothing has been done; add --force to let this node lead without them.", json=answer)
    deadline = time.monotonic() + _WAIT_SECONDS
    while _ask(context, "local")["role"] != "leader":
        if time.monotonic() > deadline:
            raise failed(f"{text}\nThis node does not lead after {_WAIT_SECONDS:g} s; see its log")
        time.sleep(_PAUSE)
    return Outcome(f"{text}\nThis node leads.", {"missing": missing, "result": "leads"})


def _ask(context: CommandContext, *local: str) -> dict[str, Any]:
    try:
        told: dict[str, Any] = context.api.get("replication", *local)
    except ApiFault as fault:
        raise refused(fault, "commands for replication") from fault
    return told
