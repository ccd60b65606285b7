"""Registry of the commands by module. Modules are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from leveret.broker.management.cli.command import Command

# Module of `commands` -> its commands.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "help_commands": ("autocomplete", "completion", "help", "version"),
    "browse": ("browse",),
    "check_backlog": ("check_backlog",),
    "clients": ("list_channels", "list_connections", "list_consumers"),
    "close_connections": ("close_all_connections", "close_all_user_connections", "close_connection"),
    "cluster": (
        "await_online_nodes",
        "await_startup",
        "cluster_status",
        "enable_feature_flag",
        "list_feature_flags",
        "set_cluster_name",
    ),
    "consumer_names": ("delete_consumer_name", "list_consumer_names", "set_consumer_name"),
    "definitions": ("export_definitions", "import_definitions"),
    "delayed_messages": (
        "cancel_delayed_message",
        "cancel_delayed_retry",
        "deliver_delayed_message",
        "deliver_delayed_retry",
        "list_delayed_messages",
        "list_delayed_retries",
        "show_delayed_message",
        "show_delayed_retry",
    ),
    "delete_messages": ("delete_messages",),
    "exchanges": ("list_bindings", "list_exchanges"),
    "explain_queue": ("explain_queue",),
    "health": (
        "check_alarms",
        "check_certificate_expiration",
        "check_if_node_is_mirror_sync_critical",
        "check_if_node_is_quorum_critical",
        "check_local_alarms",
        "check_running",
        "check_virtual_hosts",
        "is_booting",
        "is_running",
        "node_health_check",
        "ping",
    ),
    "jobs": ("cancel_job", "list_jobs", "resume_job", "return_messages"),
    "limits": (
        "clear_user_limits",
        "clear_vhost_limits",
        "list_user_limits",
        "list_vhost_limits",
        "set_user_limits",
        "set_vhost_limits",
    ),
    "listeners": ("check_port_connectivity", "check_port_listener", "check_protocol_listener", "listeners"),
    "losses": ("list_losses",),
    "move_messages": ("move_messages",),
    "node": (
        "alarms",
        "environment",
        "erlang_version",
        "list_node_auth_attempt_stats",
        "log_location",
        "memory_breakdown",
        "report",
        "reset_node_auth_attempt_metrics",
        "server_version",
    ),
    "node_status": ("status",),
    "parameters": (
        "clear_global_parameter",
        "clear_parameter",
        "list_global_parameters",
        "list_parameters",
        "set_global_parameter",
        "set_parameter",
    ),
    "permissions": (
        "clear_permissions",
        "clear_topic_permissions",
        "list_permissions",
        "list_topic_permissions",
        "list_user_permissions",
        "list_user_topic_permissions",
        "set_permissions",
        "set_topic_permissions",
    ),
    "policies": (
        "clear_operator_policy",
        "clear_policy",
        "list_operator_policies",
        "list_policies",
        "set_operator_policy",
        "set_policy",
    ),
    "publish_get": ("get", "publish"),
    "queues": ("delete_queue", "list_queues", "purge_queue"),
    "readers": ("delete_reader", "list_readers"),
    "replay": ("replay",),
    "topology": ("bind", "declare_exchange", "declare_queue", "delete_exchange", "unbind"),
    "users": (
        "add_user",
        "authenticate_user",
        "change_password",
        "clear_password",
        "delete_user",
        "list_users",
        "set_user_tags",
    ),
    "vhosts": (
        "add_vhost",
        "delete_vhost",
        "list_vhosts",
        "restart_vhost",
        "set_vhost_tags",
        "trace_off",
        "trace_on",
    ),
}
# Minimum similarity (0 to 1) of a mistyped name to the suggested command.
_MIN_SIMILARITY: Final = 0.85


def names() -> list[str]:
    """Return the names of all commands, sorted."""
    return sorted(name for module in MODULES.values() for name in module)


def find(name: str) -> Command | None:
    """Return the command with a name, None if it does not exist."""
    for module, commands in MODULES.items():
        if name in commands:
            return next(command for command in _load(module) if command.name == name)
    return None


def commands() -> Iterator[Command]:
    """Yield all commands. Imports all of their modules."""
    for module in MODULES:
        yield from _load(module)


def closest_name(name: str) -> str | None:
    """Return the command most similar to a mistyped name, None if no name is similar enough."""
    import difflib

    found = difflib.get_close_matches(name, names(), 1, _MIN_SIMILARITY)
    return found[0] if found else None


def _load(module: str) -> tuple[Command, ...]:
    found: tuple[Command, ...] = importlib.import_module(f"leveret.broker.management.cli.commands.{module}").COMMANDS
    return found
