"""Which commands there are, in which sections and modules, those of RabbitMQ that there are not, and the help texts.

Modules are imported on first use.
"""

from __future__ import annotations

import importlib
import re
from typing import Final

from leveret.broker.leveretctl.command import COMMANDS, Command
from leveret.broker.leveretctl.printing import Style

# Section of the command list -> module of `commands` -> commands.
SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Help": {"help_commands": "autocomplete completion help version"},
    "Nodes": {"node": "await_startup"},
    "Cluster": {
        "node": "await_online_nodes cluster_status",
        "replication": "failover forget_cluster_node promote replication_status",
    },
    "Users": {
        "users": "add_user authenticate_user change_password clear_password delete_user list_users set_user_tags",
        "vhosts": "clear_user_limits list_user_limits set_user_limits",
    },
    "Access Control": {
        "users": (
            "clear_permissions clear_topic_permissions explain_access list_permissions list_topic_permissions"
            " list_user_permissions list_user_topic_permissions set_permissions set_topic_permissions"
        ),
        "vhosts": "list_vhosts",
    },
    "Monitoring, observability and health checks": {
        "audit": "list_audit",
        "backlog": "check_backlog",
        "connections": "list_channels list_connections list_consumers",
        "health": (
            "check_alarms check_certificate_expiration check_if_node_is_mirror_sync_critical"
            " check_if_node_is_quorum_critical check_local_alarms check_port_connectivity check_port_listener"
            " check_protocol_listener check_running check_virtual_hosts is_booting is_running listeners ping"
        ),
        "jobs": "list_backups restore_queue",
        "node": "alarms erlang_version list_node_auth_attempt_stats memory_breakdown report server_version status",
        "queues": "list_bindings list_exchanges list_queues",
        "sql": "sql",
    },
    "Parameters": {
        "definitions": (
            "clear_global_parameter clear_parameter list_global_parameters list_parameters set_global_parameter"
            " set_parameter"
        ),
    },
    "Policies": {
        "policies": (
            "clear_operator_policy clear_policy list_operator_policies list_policies set_operator_policy set_policy"
        ),
    },
    "Shovels": {"shovels": "delete_shovel restart_shovel shovel_status"},
    "Virtual hosts": {
        "vhosts": (
            "add_vhost clear_vhost_limits delete_vhost list_vhost_limits restart_vhost set_vhost_limits set_vhost_tags"
            " trace_off trace_on"
        ),
    },
    "Configuration and Environment": {
        "node": "environment log_location reset_node_auth_attempt_metrics set_cluster_name",
    },
    "Definitions": {
        "check_migration": "check_migration",
        "definitions": "export_definitions import_definitions",
        "migrate": "migrate",
    },
    "Feature flags": {"node": "enable_feature_flag list_feature_flags"},
    "Operations": {"connections": "close_all_connections close_all_user_connections close_connection"},
    "Queues": {
        "backlog": "list_losses",
        "delayed_messages": (
            "cancel_delayed_message cancel_delayed_retry deliver_delayed_message deliver_delayed_retry"
            " list_delayed_messages list_delayed_retries show_delayed_message show_delayed_retry"
        ),
        "jobs": "cancel_job list_jobs move_messages resume_job return_messages",
        "messages": "browse delete_messages get publish",
        "policies": "explain_queue",
        "queues": "bind declare_exchange declare_queue delete_exchange delete_queue purge_queue unbind",
        "streams": "delete_consumer_name delete_reader list_consumer_names list_readers replay set_consumer_name",
    },
    "Deprecated": {"health": "node_health_check"},
}
# Command -> its module.
MODULES: Final = {
    name: module for modules in SECTIONS.values() for module, listed in modules.items() for name in listed.split()
}
# Why Leveret does not have a command -> those commands of RabbitMQ.
_UNSUPPORTED: Final = {
    "there are no mirrored queues": "cancel_sync_queue sync_queue",
    "the HTTP API has no TLS details except for check_certificate_expiration": (
        "certificates cipher_suites tls_versions"
    ),
    "nodes find one another by replication.register": (
        "change_cluster_node_type discover_peers force_boot join_cluster rename_cluster_node update_cluster_nodes"
    ),
    "use the tools of the broker's machine": (
        "command_line_arguments list_network_interfaces os_env resolve_hostname resolver_info"
    ),
    "the HTTP API has no event stream": "consume_event_stream",
    "values in the configuration are not encrypted": "decode encode list_ciphers list_hashes",
    "the HTTP API cannot change the configuration; set the option and restart the broker": (
        "disable_auth_attempt_source_tracking enable_auth_attempt_source_tracking set_disk_free_limit set_log_level"
        " set_vm_memory_high_watermark"
    ),
    "Leveret does not use Erlang": (
        "erlang_cookie_hash erlang_cookie_sources eval eval_file exec force_gc hipe_compile maybe_stuck observer"
        " reclaim_quorum_memory remote_shell runtime_thread_stats schema_info"
    ),
    "stop the broker and remove its data directory": "force_reset reset",
    "queues cannot become unresponsive one by one; try list_queues": "list_unresponsive_queues",
    "the log goes to the broker's standard error": "log_tail log_tail_stream rotate_logs",
    "a quorum queue has one member; see list_queues name leader members": "quorum_status",
    "the HTTP API does not open and close listeners": "resume_listeners suspend_listeners",
    "start and stop the broker process; SIGTERM stops it": "shutdown start_app stop stop_app",
    "a stream has one member; see list_queues name leader members": "stream_status",
    "there is no pid file; use await_startup": "wait",
}
UNSUPPORTED: Final = {name: reason for reason, names in _UNSUPPORTED.items() for name in names.split()}
# Minimum similarity (0 to 1) of a mistyped name to the suggested command.
_MIN_SIMILARITY: Final = 0.85


def names() -> list[str]:
    """Return the names of all commands, sorted."""
    return sorted(MODULES)


def find(name: str) -> Command | None:
    """Return the command with a name, None if it does not exist."""
    return get(name) if name in MODULES else None


def get(name: str) -> Command:
    """Return a command that exists. Imports its module."""
    importlib.import_module(f"leveret.broker.leveretctl.commands.{MODULES[name]}")
    return COMMANDS[name]


def closest_name(name: str) -> str | None:
    """Return the command most similar to a mistyped name, None if no name is similar enough."""
    import difflib

    found = difflib.get_close_matches(name, names(), 1, _MIN_SIMILARITY)
    return found[0] if found else None


# -- help and usage texts ------------------------------------------------------------------------------------

PROGRAM: Final = "leveretctl"
_GENERAL: Final = """\
The following options are accepted by most or all commands.

short            | long          | description
-----------------|---------------|--------------------------------
-?               | --help        | displays command help
                 | --url <url>   | the broker's HTTP API, http://user:password@host:port;
                 |               | default: $LEVERET_URL, then http://guest:guest@127.0.0.1:15672
                 | --cacert <f>  | PEM file of the authority of its certificate, with https://;
                 |               | default: $LEVERET_CACERT, then those of the system
-t <n>           | --timeout <n> | seconds to wait for an answer
-q               | --quiet       | suppress informational messages
-s               | --silent      | suppress informational messages
                                 | and table header row
-p               | --vhost       | for commands that are scoped to a virtual host,
                 |               | virtual host to use
                 | --formatter   | alternative result formatter to use:
                                 | json, pretty_table, table, csv, erlang
                 | --dry-run     | show what would be done, without doing it
-n <node>        | --node <node> | accepted and ignored, as is -l | --longnames"""


def command_list(terminal: bool) -> str:
    """Return the help text that lists all commands, with bold headers on a terminal."""
    bold = Style(terminal=terminal).bold
    line = f"{PROGRAM} [--url <url>] [--timeout <timeout>] [--quiet] <command> [<options>]"
    lines = ["", bold("Usage"), "", line, "", "Available commands:", ""]
    longest = max(map(len, names()))
    for section, modules in SECTIONS.items():
        listed = sorted(" ".join(modules.values()).split())
        summaries = [f"   {name:{longest}}  {get(name).summary}" for name in listed]
        lines += [f"{bold(section)}:", "", *summaries, ""]
    lines.append(f"Use '{PROGRAM} help <command>' to learn more about a specific command")
    return "\n".join(lines)


def usage(command: Command) -> str:
    """Return the usage line of a command."""
    return f"{PROGRAM} [--url <url>] [--quiet] {command.name} {command.usage}".rstrip()


def command_help(command: Command, terminal: bool) -> str:
    """Return the help text of a command, with bold headers on a terminal."""
    bold = Style(terminal=terminal).bold
    lines = ["", bold("Usage"), "", usage(command), "", f"{command.summary.rstrip('.')}.", ""]
    explanations = [(part.heading, part.text) for part in command.parts if part.text]
    if command.columns:
        explanations.insert(0, ("<column>", f"must be one of {', '.join(sorted(command.columns))}"))
    if explanations:
        lines += [bold("Arguments and Options"), ""]
        for name, text in explanations:
            lines += [name, f"\t{text}", ""]
    lines += [bold("General Options"), "", _GENERAL, ""]
    return "\n".join(lines)


def usage_error(command: Command, text: str, argv: list[str], terminal: bool) -> str:
    """Return the error text for an invalid command line."""
    # Without logins in URLs, because the text may be logged.
    given = " ".join(re.sub("(?s)://.*@", "://", word) for word in argv)
    usage_header = Style(terminal=terminal).bold("Usage")
    return f"Error (argument validation): {text}\nArguments given:\n\t{given}\n\n{usage_header}\n\n{usage(command)}"


def unknown_command(name: str, near: str | None) -> str:
    """Return the error text for a command that does not exist."""
    text = f"Command '{name}' not found. "
    return f"{text}\nDid you mean '{near}'? \n" if near else text


def unreachable_broker(address: str, reason: str) -> str:
    """Return the error text for a broker that does not respond."""
    return f"""\
Error: unable to perform an operation on node '{address}'. Please see diagnostics information and suggestions below.

Most common reasons for this are:

 * Target node is unreachable_broker (e.g. due to hostname resolution, TCP connection or firewall issues)
 * Target node is not running
 * Its management API listens on another address or port

DIAGNOSTICS
===========

attempted to contact: [{address}]

{address}:
  * {reason}
  * suggestion: start the broker, or set the URL of its HTTP API with --url or LEVERET_URL
"""
