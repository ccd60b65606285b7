"""The commands for a cluster of a leader and standbys. RabbitMQ has no such commands."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.management.cli.columns import table_columns, to_rows
from leveret.broker.management.cli.command import CommandContext, Outcome, Result, command
from leveret.broker.management.cli.faults import ApiFault, failed, refused
from leveret.broker.management.cli.options import TIMEOUT, Argument
from leveret.broker.management.fields import STANDBY

_COLUMNS: Final = table_columns(STANDBY)
_CLUSTER: Final = "Cluster"
_WAIT_SECONDS: Final = 30.0
_PAUSE: Final = 0.05


@command(
    "replication_status",
    _CLUSTER,
    "Displays the role of the node, and the standbys: who is in sync, and how far each is",
    (TIMEOUT,),
    banner="Status of replication ...",
)
def _status(context: CommandContext) -> Result:
    told = _ask(context)
    lines = [
        f"Node: {told['node']}, role: {told['role']}",
        f"Leader: {told.get('leader', '')}, epoch: {told.get('epoch', 0)}, operation: {told.get('operation', 0)}",
        f"In sync: {', '.join(told.get('in_sync', ())) or '(none)'}",
    ]
    rows = to_rows(_COLUMNS, tuple(_COLUMNS), told["standbys"]).rows
    lines += ["Standby: " + ", ".join(f"{name}: {value}" for name, value in row.items()) for row in rows]
    return Outcome("\n".join(lines), told)


@command(
    "failover",
    _CLUSTER,
    "Lets another node of the in-sync set lead; clients are closed, and may connect again at once",
    (Argument("[<node>]", "name of the node (replication.node); by default any that is in sync"), TIMEOUT),
    banner="Letting another node lead ...",
)
def _fail_over(context: CommandContext) -> Result:
    before = _ask(context)
    try:
        answer = context.api.request("POST", ("replication", "failover"), body={"node": "".join(context.arguments)})
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


def _ask(context: CommandContext) -> dict[str, Any]:
    try:
        told: dict[str, Any] = context.api.get("replication")
    except ApiFault as fault:
        raise refused(fault, "commands for replication") from fault
    return told
