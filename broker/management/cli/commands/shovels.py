"""Commands for shovels, as RabbitMQ's plugin has them. They are set with set_parameter."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import CommandContext, Result, ResultRows, command, ok_result
from leveret.broker.management.cli.command_errors import ApiFault, failed
from leveret.broker.management.cli.command_line import HEADERS, TIMEOUT, VHOST, Argument

_SHOVELS: Final = "Shovels"
#: Columns by the field of the API, sorted as RabbitMQ does. Those that are not optional are there for all shovels.
_COLUMNS: Final = {
    "dest_uri": "destination",
    "dest_exchange": "destination_exchange",
    "dest_exchange_key": "destination_exchange_key",
    "dest_protocol": "destination_protocol",
    "dest_queue": "destination_queue",
    "timestamp": "last_changed",
    "name": "name",
    "src_uri": "source",
    "src_exchange": "source_exchange",
    "src_exchange_key": "source_exchange_key",
    "src_protocol": "source_protocol",
    "src_queue": "source_queue",
    "state": "state",
    "reason": "termination_reason",
    "type": "type",
    "vhost": "vhost",
}
_ALWAYS: Final = ("dest_uri", "timestamp", "name", "src_uri", "state", "reason", "type")


@command(
    "shovel_status",
    _SHOVELS,
    "Displays status of Shovel on a node",
    (HEADERS, TIMEOUT),
    banner="Shovel status on node {context.node}",
)
def _status(context: CommandContext) -> ResultRows:
    found = context.api.get("shovels")
    fields = [name for name in _COLUMNS if name in _ALWAYS or any(name in shovel for shovel in found)]
    rows = [
        {_COLUMNS[name]: shovel.get(name, "") for name in fields if name in _ALWAYS or name in shovel}
        for shovel in found
    ]
    columns = tuple(_COLUMNS[name] for name in fields)
    table: list[dict[str, Any]] = [{name: row.get(name, "") for name in columns} for row in rows]
    return ResultRows(columns, table, streamed=True, json=rows)


@command(
    "restart_shovel",
    _SHOVELS,
    "Restarts a dynamic Shovel",
    (VHOST, Argument("<name>", "name of the Shovel to restart")),
    banner="Restarting dynamic Shovel {0} in virtual host {context.vhost} on node {context.node}",
)
def _restart(context: CommandContext) -> Result:
    return _delete(context, "restart")


@command(
    "delete_shovel",
    _SHOVELS,
    "Deletes a Shovel",
    (VHOST, Argument("<name>", "Shovel to delete")),
    banner="Deleting shovel {0} in vhost {context.vhost}",
)
def _remove(context: CommandContext) -> Result:
    return _delete(context)


def _delete(context: CommandContext, *action: str) -> Result:
    (name,) = context.arguments
    try:
        context.api.delete("shovels", "vhost", context.vhost, name, *action)
    except ApiFault as fault:
        if not fault.not_found:
            raise
        raise failed(
            f"Shovel with the given name was not found on the target node '{context.node}' and / or virtual host"
            f" '{context.vhost}'"
        ) from fault
    return ok_result(context)
