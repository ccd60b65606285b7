"""Health checks: exit status 0 or 69, with one line of output."""

from __future__ import annotations

import socket
from typing import Any, Final

from leveret.broker.leveretctl.command import DEFAULT_TIMEOUT, CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    UNAVAILABLE,
    ApiFault,
    CommandFault,
    NoAnswer,
    UsageFault,
    bad_argument,
    failed,
)
from leveret.broker.leveretctl.command_line import TIMEOUT, Argument, option
from leveret.broker.leveretctl.commands.node import alarms, listener_line, listeners

_UNITS: Final = ("days", "weeks", "months", "years")
# Aliases of protocols that the checks accept.
_PROTOCOLS: Final = {"amqp091": "amqp", "amqps": "amqp/ssl", "amqp-ssl": "amqp/ssl"}
_COLUMNS: Final = ("node", "protocol", "interface", "port", "purpose")
_WILDCARD_ADDRESSES: Final = ("[::]", "0.0.0.0")
_CONNECT_TIMEOUT: Final = 5.0
_SINGLE_NODE: Final = "seems to be the only one in a single node cluster, the check does not apply"


def _milliseconds(context: CommandContext) -> int:
    return context.integer("timeout", DEFAULT_TIMEOUT) * 1000


def _ping_banner(context: CommandContext) -> str:
    return (
        f"Will ping {context.address}. This only checks if the HTTP API responds and accepts the user's"
        f" password. Timeout: {_milliseconds(context)} ms."
    )


@command((TIMEOUT,), banner=_ping_banner)
def ping(context: CommandContext) -> Result:
    """Checks that the HTTP API responds and accepts the user's password."""
    try:
        context.api.get("whoami")
    except (ApiFault, NoAnswer) as fault:
        text = f"Failed to connect and authenticate to {context.address} in {_milliseconds(context)} ms"
        raise failed(text) from fault
    return Outcome("Ping succeeded", {"message": "Ping succeeded"})


@command((TIMEOUT,), banner="Checking if RabbitMQ is running on node {context.node} ...")
def check_running(context: CommandContext) -> Result:
    """Health check that fails if the broker is not running."""
    text = f"RabbitMQ on node {context.node} is fully booted and running"
    return Outcome(text, {"message": text})


@command((TIMEOUT,), banner="Asking node {context.node} for its status ...")
def is_running(context: CommandContext) -> Result:
    """Checks if the broker is fully booted and running."""
    text = f"RabbitMQ on node {context.node} is fully booted and running"
    return Outcome(text, {"message": text, "result": True})


@command((TIMEOUT,), banner="Asking node {context.node} for its boot status ...")
def is_booting(context: CommandContext) -> Result:
    """Checks if the broker is still booting."""
    # The API is started last, so the node is booted if it responds.
    text = (
        f"RabbitMQ on node {context.node} is fully booted (check with is_running), stopped or has not started"
        " booting yet"
    )
    return Outcome(text, {"message": text, "result": False})


def _passed(context: CommandContext, text: str, json: dict[str, str]) -> Outcome:
    """Return the result of a passed check. With `--silent` only the exit status shows it."""
    return Outcome("" if context.flag("silent") else text, json)


def _check_alarms(context: CommandContext, where: str) -> Result:
    found = alarms(context)
    if found:
        json = {"alarms": [{"node": context.node, "resource": resource} for resource, _ in found], "result": "error"}
        raise failed("\n".join(line for _, line in found), json=json)
    return _passed(context, f"Node {context.node} reported {where}", {"result": "ok"})


@command((TIMEOUT,), banner="Asking node {context.node} to report any local resource alarms ...")
def check_local_alarms(context: CommandContext) -> Result:
    """Health check that fails if a memory or disk alarm is in effect."""
    return _check_alarms(context, "no local alarms")


@command((TIMEOUT,), banner="Asking node {context.node} to report any local resource alarms ...")
def check_alarms(context: CommandContext) -> Result:
    """Same as check_local_alarms, because there is one node."""
    return _check_alarms(context, "no alarms, local or clusterwide")


@command((TIMEOUT,), banner="Checking if all vhosts are running on node {context.node} ...")
def check_virtual_hosts(context: CommandContext) -> Result:
    """Health check that fails if a virtual host is not running."""
    states = {each["name"]: (each.get("cluster_state") or {}).values() for each in context.api.get("vhosts")}
    down = [name for name, by_node in states.items() if any(state != "running" for state in by_node)]
    if down:
        names = "\n".join(down)
        text = f"Some virtual hosts on node {context.node} are down:\n{names}"
        raise failed(text, json={"down_vhosts": down, "result": "error"})
    return _passed(context, f"Node {context.node} reported all vhosts as running", {"result": "ok"})


def _period(context: CommandContext) -> tuple[int, str]:
    return context.integer("within", 4), context.text("unit", "weeks")


def _check_unit(context: CommandContext) -> None:
    if isinstance(context.options.get("within"), str):
        raise UsageFault(f"--within takes a number and --unit its unit, not {context.options['within']}")
    unit = _period(context)[1]
    if unit.lower() not in _UNITS:
        raise UsageFault(f"\"unit '{unit}' is not supported. Please use one of: {', '.join(_UNITS)}\"")


@command(
    (
        option("within", "length of the period; default 4", value="<period>"),
        option("unit", "unit of the period: days, weeks, months or years; default weeks", values=_UNITS),
    ),
    banner="Checking certificate expiration on node {context.node} ...",
    check=_check_unit,
)
def check_certificate_expiration(context: CommandContext) -> Result:
    """Health check that fails if a listener's certificate expires soon."""
    count, unit = _period(context)
    try:
        context.api.get("health", "checks", "certificate-expiration", str(count), unit.lower())
    except ApiFault as fault:
        raise failed(fault.reason, json={"result": "error", "reason": fault.reason}) from fault
    period = f"{count} {unit if count != 1 else unit.removesuffix('s')}"
    return Outcome(f"No certificates are expiring within {period}.", {"result": "ok"})


def _single_node(context: CommandContext) -> Result:
    json = {"message": f"Target node {_SINGLE_NODE}", "result": "ok"}
    return _passed(context, f"Node {context.node} {_SINGLE_NODE}", json)


@command((TIMEOUT,), banner="Checking if node {context.node} is critical for quorum of any quorum queues ...")
def check_if_node_is_quorum_critical(context: CommandContext) -> Result:
    """Always passes: there is one node."""
    return _single_node(context)


@command(
    (TIMEOUT,),
    banner="Checking if node {context.node} is critical for data safety of any classic mirrored queues ...",
)
def check_if_node_is_mirror_sync_critical(context: CommandContext) -> Result:
    """Always passes: there are no mirrored queues."""
    return _single_node(context)


def _node_health_banner(context: CommandContext) -> str:
    return (
        "This command is DEPRECATED and will be removed in a future version.\n"
        "It performs intrusive, opinionated health checks and requires a fully booted node.\n"
        "Use one of the options covered in https://www.rabbitmq.com/monitoring.html#health-checks instead.\n"
        f"Timeout: {context.integer('timeout', 70)} seconds ...\nChecking health of node {context.node} ..."
    )


@command((TIMEOUT,), banner=_node_health_banner)
def node_health_check(context: CommandContext) -> Result:
    """DEPRECATED. Use check_running, check_alarms and similar checks instead."""
    found = alarms(context)
    if found:
        raise failed(f"Health check failed.  Status: {'; '.join(line for _, line in found)}")
    return Outcome("Health check passed", {"result": "ok", "message": "Health check passed"})


@command((TIMEOUT,), name="listeners", banner="Asking node {context.node} to report its protocol listeners ...")
def _list(context: CommandContext) -> Result:
    """Lists active connection listeners (bound interface, port, protocol)."""
    found = listeners(context)
    if context.text("formatter") == "csv":
        return ResultRows(_COLUMNS, found)
    text = "\n".join(listener_line(each) for each in found)
    return Outcome(text, {"listeners": found, "node": context.node, "result": "ok"})


def _check_port_argument(context: CommandContext) -> None:
    port = context.arguments[0]
    if not port.isdigit() or int(port) == 0:
        raise bad_argument("Argument must be a positive integer")


@command(
    (Argument("<port>"), TIMEOUT),
    banner="Asking node {context.node} if there's an active listener on port {0} ...",
    check=_check_port_argument,
)
def check_port_listener(context: CommandContext, port: str) -> Result:
    """Health check that fails if nothing listens on a port."""
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


def _check_protocol_argument(context: CommandContext) -> None:
    if not context.arguments[0]:
        raise UsageFault("not enough arguments.")


@command(
    (Argument("<protocol>", "amqp, amqps, http, https, http/prometheus"), TIMEOUT),
    banner="Asking node {context.node} if there's an active listener for protocol {0} ...",
    check=_check_protocol_argument,
)
def check_protocol_listener(context: CommandContext, named: str) -> Result:
    """Health check that fails if no listener uses a protocol."""
    protocol = _PROTOCOLS.get(named.lower(), named.lower())
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


@command((TIMEOUT,), banner="Testing TCP connections to all active listeners on node {context.node} ...")
def check_port_connectivity(context: CommandContext) -> Result:
    """Health check that connects to the port of every listener from this machine."""
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
