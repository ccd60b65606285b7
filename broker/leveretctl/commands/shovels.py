"""Commands for shovels, as RabbitMQ's plugin has them. They are set with set_parameter."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, ResultRows, command
from leveret.broker.leveretctl.command_errors import ApiFault, failed
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument

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


@command((HEADERS, TIMEOUT), banner="Shovel status on node {context.node}")
def shovel_status(context: CommandContext) -> ResultRows:
    """Displays status of Shovel on a node."""
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
    (VHOST, Argument("<name>", "name of the Shovel to restart")),
    banner="Restarting dynamic Shovel {0} in virtual host {context.vhost} on node {context.node}",
)
def restart_shovel(context: CommandContext, name: str) -> None:
    """Restarts a dynamic Shovel."""
    _delete(context, name, "restart")


@command((VHOST, Argument("<name>", "Shovel to delete")), banner="Deleting shovel {0} in vhost {context.vhost}")
def delete_shovel(context: CommandContext, name: str) -> None:
    """Deletes a Shovel."""
    _delete(context, name)


def _delete(context: CommandContext, *path: str) -> None:
    try:
        context.api.delete("shovels", "vhost", context.vhost, *path)
    except ApiFault as fault:
        if not fault.not_found:
            raise
        raise failed(
            f"Shovel with the given name was not found on the target node '{context.node}' and / or virtual host"
            f" '{context.vhost}'"
        ) from fault
