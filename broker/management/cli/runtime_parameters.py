"""Sets and clears runtime parameters, policies and limits of virtual hosts."""

from __future__ import annotations

from typing import Any

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import failed, no_such_vhost


def put(context: CommandContext, path: tuple[str, ...], body: Any, **query: Any) -> Any:
    """Set a definition. Reports an unknown virtual host as rabbitmqctl does.

    Raises:
        CommandFault: the virtual host does not exist (exit status 65), or the definition is invalid (69).
    """
    try:
        return context.api.put(*path, body=body, **query)
    except ApiFault as fault:
        if fault.not_found:
            raise no_such_vhost(context.vhost) from fault
        if fault.status == 400:
            raise failed(fault.reason) from fault
        raise


def clear(context: CommandContext, path: tuple[str, ...]) -> None:
    """Delete a definition.

    Raises:
        CommandFault: the definition does not exist (exit status 69).
    """
    try:
        context.api.delete(*path)
    except ApiFault as fault:
        if fault.not_found:
            raise failed("Parameter does not exist") from fault
        raise
