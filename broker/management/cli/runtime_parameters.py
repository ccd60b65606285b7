"""Setting and clearing what virtual hosts keep by name: parameters, policies, limits."""

from __future__ import annotations

from typing import Any

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import failed, no_such_vhost


def put(context: CommandContext, path: tuple[str, ...], body: Any, **query: Any) -> Any:
    """Send a definition, and report an unknown virtual host as rabbitmqctl does.

    Raises:
        CommandFault: there is no such virtual host (65), or the definition is refused (69).
    """
    try:
        return context.api.put(*path, body=body, **query)
    except ApiFault as fault:
        if fault.missing:
            raise no_such_vhost(context.vhost) from fault
        if fault.status == 400:
            raise failed(fault.reason) from fault
        raise


def clear(context: CommandContext, path: tuple[str, ...]) -> None:
    """Delete a definition.

    Raises:
        CommandFault: there is none (69).
    """
    try:
        context.api.delete(*path)
    except ApiFault as fault:
        if fault.missing:
            raise failed("Parameter does not exist") from fault
        raise
