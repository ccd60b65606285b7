"""The command listeners, and health checks of listeners."""

from __future__ import annotations

import socket
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows
from leveret.broker.management.cli.faults import UNAVAILABLE, CommandFault, UsageFault, bad_argument, failed
from leveret.broker.management.cli.node_info import PROTOCOLS, listener_line, listeners

SECTION: Final = "Monitoring, observability and health checks"
_COLUMNS: Final = ("node", "protocol", "interface", "port", "purpose")
_WILDCARD_ADDRESSES: Final = ("[::]", "0.0.0.0")
_CONNECT_TIMEOUT: Final = 5.0


def _list(context: CommandContext) -> Result:
    found = listeners(context)
    if context.text("formatter") == "csv":
        return ResultRows(_COLUMNS, found)
    return Outcome(
        "\n".join(listener_line(each) for each in found), {"listeners": found, "node": context.node, "result": "ok"}
    )


def _check_port_argument(context: CommandContext) -> None:
    port = context.arguments[0]
    if not port.isdigit() or int(port) == 0:
        raise bad_argument("Argument must be a positive integer")


def _port(context: CommandContext) -> Result:
    (port,) = context.arguments
    found = listeners(context)
    if any(str(each["port"]) == port for each in found):
        text = f"A listener for port {port} is running on node {context.node}."
        return Outcome(text, {"node": context.node, "port": port, "result": "ok"})
    ports = [each["port"] for each in found]
    json = {"listeners": found, "missing": port, "ports": ports, "result": "error"}
    text = (
        f"No listener for port {port} is active on node {context.node}."
        f" Found listeners that use the following ports: {_joined(ports)}"
    )
    raise CommandFault(UNAVAILABLE, text, json=json)


def _joined(values: list[Any]) -> str:
    return ", ".join(str(value) for value in sorted(set(values)))


def _protocol(context: CommandContext) -> Result:
    protocol = PROTOCOLS.get(context.arguments[0].lower(), context.arguments[0].lower())
    found = listeners(context)
    protocols = list(dict.fromkeys(each["protocol"] for each in found))
    if protocol in protocols:
        text = f"A listener for protocol {protocol} is running on node {context.node}."
        return Outcome(text, {"node": context.node, "protocol": protocol, "result": "ok"})
    json = {"listeners": found, "missing": protocol, "protocols": protocols, "result": "error"}
    text = (
        f"No listener for protocol {protocol} is active on node {context.node}."
        f" Found listeners for the following protocols: {_joined(protocols)}"
    )
    raise failed(text, json=json)


def _connectivity(context: CommandContext) -> Result:
    found = listeners(context)
    broken = [each for each in found if not _connects(context, each)]
    if broken:
        ports = _joined([each["port"] for each in broken])
        json = {"listeners": broken, "node": context.node, "result": "error"}
        raise failed(f"Connection attempts to the following ports failed: {ports}", json=json)
    ports = _joined([each["port"] for each in found])
    text = f"Successfully connected to ports {ports} on node {context.node}."
    return Outcome(text, {"listeners": found, "node": context.node, "result": "ok"})


def _connects(context: CommandContext, listener: dict[str, Any]) -> bool:
    """Check whether a listener accepts a TCP connection from this machine.

    A listener on all interfaces is tried at the host of the API.
    """
    address = str(listener["interface"])
    host = context.api.address.host if address in _WILDCARD_ADDRESSES else address.strip("[]")
    try:
        socket.create_connection((host, listener["port"]), _CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def _check_protocol_argument(context: CommandContext) -> None:
    if not context.arguments[0]:
        raise UsageFault("not enough arguments.")


COMMANDS: Final = (
    Command(
        name="listeners",
        section=SECTION,
        summary="Lists active connection listeners (bound interface, port, protocol)",
        usage="[--timeout <timeout>]",
        run=_list,
        banner=lambda context: f"Asking node {context.node} to report its protocol listeners ...",
    ),
    Command(
        name="check_port_listener",
        section=SECTION,
        summary="Health check that fails if nothing listens on a port",
        usage="<port> [--timeout <timeout>]",
        run=_port,
        min_arguments=1,
        max_arguments=1,
        check=_check_port_argument,
        banner=lambda context: (
            f"Asking node {context.node} if there's an active listener on port {context.arguments[0]} ..."
        ),
    ),
    Command(
        name="check_protocol_listener",
        section=SECTION,
        summary="Health check that fails if no listener uses a protocol",
        usage="<protocol> [--timeout <timeout>]",
        run=_protocol,
        min_arguments=1,
        max_arguments=1,
        check=_check_protocol_argument,
        banner=lambda context: (
            f"Asking node {context.node} if there's an active listener for protocol {context.arguments[0]} ..."
        ),
        explanations=(("<protocol>", "amqp, amqps, http, https, http/prometheus"),),
    ),
    Command(
        name="check_port_connectivity",
        section=SECTION,
        summary="Health check that connects to the port of every listener from this machine",
        usage="[--timeout <timeout>]",
        run=_connectivity,
        banner=lambda context: f"Testing TCP connections to all active listeners on node {context.node} ...",
    ),
)
