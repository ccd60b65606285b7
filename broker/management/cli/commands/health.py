"""Health checks: exit status 0 or 69, with one line of output."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.management.cli.command import DEFAULT_TIMEOUT, Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.faults import ApiFault, CommandFault, RequestTimeout, Unreachable, UsageFault, failed
from leveret.broker.management.cli.node_info import alarms

SECTION: Final = "Monitoring, observability and health checks"
UNITS: Final = ("days", "weeks", "months", "years")
_SINGLE_NODE: Final = "seems to be the only one in a single node cluster, the check does not apply"


def _ping(context: CommandContext) -> Result:
    try:
        context.api.get("whoami")
    except (ApiFault, Unreachable, RequestTimeout) as fault:
        raise failed(
            f"Failed to connect and authenticate to {context.address} in {_milliseconds(context)} ms"
        ) from fault
    return Outcome("Ping succeeded", {"message": "Ping succeeded"})


def _milliseconds(context: CommandContext) -> int:
    return context.integer("timeout", DEFAULT_TIMEOUT) * 1000


def _running(context: CommandContext) -> Result:
    text = f"RabbitMQ on node {context.node} is fully booted and running"
    return Outcome(text, {"message": text})


def _is_running(context: CommandContext) -> Result:
    text = f"RabbitMQ on node {context.node} is fully booted and running"
    return Outcome(text, {"message": text, "result": True})


def _is_booting(context: CommandContext) -> Result:
    # The API is started last, so the node is booted if it responds.
    text = (
        f"RabbitMQ on node {context.node} is fully booted (check with is_running), stopped or has not started"
        " booting yet"
    )
    return Outcome(text, {"message": text, "result": False})


def _passed(context: CommandContext, text: str, json: dict[str, str]) -> Outcome:
    """Return the result of a passed check. With `--silent` only the exit status shows it."""
    return Outcome("" if context.flag("silent") else text, json)


def _alarms(context: CommandContext, where: str) -> Result:
    found = alarms(context)
    if found:
        json = {"alarms": [{"node": context.node, "resource": resource} for resource, _ in found], "result": "error"}
        raise failed("\n".join(line for _, line in found), json=json)
    return _passed(context, f"Node {context.node} reported {where}", {"result": "ok"})


def _virtual_hosts(context: CommandContext) -> Result:
    down = [each["name"] for each in context.api.get("vhosts") if not _is_up(each)]
    if down:
        names = "\n".join(down)
        text = f"Some virtual hosts on node {context.node} are down:\n{names}"
        raise failed(text, json={"down_vhosts": down, "result": "error"})
    return _passed(context, f"Node {context.node} reported all vhosts as running", {"result": "ok"})


def _is_up(vhost: dict[str, Any]) -> bool:
    return all(state == "running" for state in (vhost.get("cluster_state") or {}).values())


def _period(context: CommandContext) -> tuple[int, str]:
    return context.integer("within", 4), context.text("unit", "weeks")


def _check_unit(context: CommandContext) -> None:
    if isinstance(context.options.get("within"), str):
        raise UsageFault(f"--within takes a number and --unit its unit, not {context.options['within']}")
    unit = _period(context)[1]
    if unit.lower() not in UNITS:
        raise UsageFault(f"\"unit '{unit}' is not supported. Please use one of: {', '.join(UNITS)}\"")


def _certificates(context: CommandContext) -> Result:
    count, unit = _period(context)
    try:
        context.api.get("health", "checks", "certificate-expiration", str(count), unit.lower())
    except ApiFault as fault:
        raise failed(fault.reason, json={"result": "error", "reason": fault.reason}) from fault
    period = f"{count} {unit if count != 1 else unit.removesuffix('s')}"
    return Outcome(f"No certificates are expiring within {period}.", {"result": "ok"})


def _single_node(context: CommandContext) -> Result:
    return _passed(
        context, f"Node {context.node} {_SINGLE_NODE}", {"message": f"Target node {_SINGLE_NODE}", "result": "ok"}
    )


def _node_health(context: CommandContext) -> Result:
    found = alarms(context)
    if found:
        raise failed(f"Health check failed.  Status: {'; '.join(line for _, line in found)}")
    return Outcome("Health check passed", {"result": "ok", "message": "Health check passed"})


def _health_check(name: str, summary: str, run: Any, banner: Any, **more: Any) -> Command:
    usage = more.pop("usage", "[--timeout <timeout>]")
    section = more.pop("section", SECTION)
    return Command(name=name, section=section, summary=summary, usage=usage, run=run, banner=banner, **more)


def wait_until_up(context: CommandContext, seconds: float) -> None:
    """Wait until the API responds.

    Args:
        context: context of the command.
        seconds: maximum wait.

    Raises:
        CommandFault: the API does not respond within that time (exit status 75).
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            context.api.get("whoami")
        except (Unreachable, RequestTimeout):
            if time.monotonic() >= deadline:
                break
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        else:
            return
    text = f"Error: operation await_startup on node {context.address} timed out. Timeout value used: {seconds:g}"
    raise CommandFault(75, text)


COMMANDS: Final = (
    _health_check(
        "ping",
        "Checks that the HTTP API responds and accepts the user's password",
        _ping,
        lambda context: (
            f"Will ping {context.address}. This only checks if the HTTP API responds and accepts the user's"
            f" password. Timeout: {_milliseconds(context)} ms."
        ),
    ),
    _health_check(
        "check_running",
        "Health check that fails if the broker is not running",
        _running,
        lambda context: f"Checking if RabbitMQ is running on node {context.node} ...",
    ),
    _health_check(
        "is_running",
        "Checks if the broker is fully booted and running",
        _is_running,
        lambda context: f"Asking node {context.node} for its status ...",
    ),
    _health_check(
        "is_booting",
        "Checks if the broker is still booting",
        _is_booting,
        lambda context: f"Asking node {context.node} for its boot status ...",
    ),
    _health_check(
        "check_local_alarms",
        "Health check that fails if a memory or disk alarm is in effect",
        lambda context: _alarms(context, "no local alarms"),
        lambda context: f"Asking node {context.node} to report any local resource alarms ...",
    ),
    _health_check(
        "check_alarms",
        "Same as check_local_alarms, because there is one node",
        lambda context: _alarms(context, "no alarms, local or clusterwide"),
        lambda context: f"Asking node {context.node} to report any local resource alarms ...",
    ),
    _health_check(
        "check_virtual_hosts",
        "Health check that fails if a virtual host is not running",
        _virtual_hosts,
        lambda context: f"Checking if all vhosts are running on node {context.node} ...",
    ),
    _health_check(
        "check_certificate_expiration",
        "Health check that fails if a listener's certificate expires soon",
        _certificates,
        lambda context: f"Checking certificate expiration on node {context.node} ...",
        usage="[--within <period>] [--unit <unit>]",
        options=("within", "unit"),
        check=_check_unit,
        explanations=(
            ("--within <period>", "length of the period; default 4"),
            ("--unit <unit>", "unit of the period: days, weeks, months or years; default weeks"),
        ),
    ),
    _health_check(
        "check_if_node_is_quorum_critical",
        "Always passes: there is one node",
        _single_node,
        lambda context: f"Checking if node {context.node} is critical for quorum of any quorum queues ...",
    ),
    _health_check(
        "check_if_node_is_mirror_sync_critical",
        "Always passes: there are no mirrored queues",
        _single_node,
        lambda context: (
            f"Checking if node {context.node} is critical for data safety of any classic mirrored queues ..."
        ),
    ),
    _health_check(
        "node_health_check",
        "DEPRECATED. Use check_running, check_alarms and similar checks instead",
        _node_health,
        lambda context: (
            "This command is DEPRECATED and will be removed in a future version.\n"
            "It performs intrusive, opinionated health checks and requires a fully booted node.\n"
            "Use one of the options covered in https://www.rabbitmq.com/monitoring.html#health-checks instead.\n"
            f"Timeout: {context.integer('timeout', 70)} seconds ...\nChecking health of node {context.node} ..."
        ),
        section="Deprecated",
    ),
)
