"""The registry, the modules of commands and the help fit together."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from leveret.broker.management.cli import commands, registry
from leveret.broker.management.cli.command import Command
from leveret.broker.management.cli.help_text import SECTIONS, command_help, command_list, usage
from leveret.broker.management.cli.options import OPTION_TYPES
from leveret.broker.management.cli.unsupported import UNSUPPORTED
from tests.support.leveretctl import CommandResult, Leveretctl

ROOT = Path(__file__).parents[5]
COMMANDS = sorted(registry.commands(), key=lambda command: command.name)

each_command = pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])


def test_the_registry_names_what_the_modules_have() -> None:
    directory = Path(str(commands.__file__)).parent
    found = {
        path.stem: tuple(sorted(command.name for command in module.COMMANDS))
        for path in directory.glob("*.py")
        if path.stem != "__init__"
        for module in [importlib.import_module(f"{commands.__name__}.{path.stem}")]
    }
    assert found == {module: tuple(sorted(names)) for module, names in registry.MODULES.items()}


# All commands of rabbitmqctl and rabbitmq-diagnostics 3.10.8.
RABBITMQ = """
add_user add_vhost alarms authenticate_user autocomplete await_online_nodes await_startup cancel_sync_queue
certificates change_cluster_node_type change_password check_alarms check_certificate_expiration
check_if_node_is_mirror_sync_critical check_if_node_is_quorum_critical check_local_alarms
check_port_connectivity check_port_listener check_protocol_listener check_running check_virtual_hosts
cipher_suites clear_global_parameter clear_operator_policy clear_parameter clear_password clear_permissions
clear_policy clear_topic_permissions clear_user_limits clear_vhost_limits close_all_connections
close_all_user_connections close_connection cluster_status command_line_arguments consume_event_stream decode
delete_queue delete_user delete_vhost disable_auth_attempt_source_tracking discover_peers
enable_auth_attempt_source_tracking enable_feature_flag encode environment erlang_cookie_hash
erlang_cookie_sources erlang_version eval eval_file exec export_definitions force_boot force_gc force_reset
forget_cluster_node help hipe_compile import_definitions is_booting is_running join_cluster list_bindings
list_channels list_ciphers list_connections list_consumers list_exchanges list_feature_flags
list_global_parameters list_hashes list_network_interfaces list_node_auth_attempt_stats list_operator_policies
list_parameters list_permissions list_policies list_queues list_topic_permissions list_unresponsive_queues
list_user_limits list_user_permissions list_user_topic_permissions list_users list_vhost_limits list_vhosts
listeners log_location log_tail log_tail_stream maybe_stuck memory_breakdown node_health_check observer os_env
ping purge_queue quorum_status reclaim_quorum_memory remote_shell rename_cluster_node report reset
reset_node_auth_attempt_metrics resolve_hostname resolver_info restart_vhost resume_listeners rotate_logs
runtime_thread_stats schema_info server_version set_cluster_name set_disk_free_limit set_global_parameter
set_log_level set_operator_policy set_parameter set_permissions set_policy set_topic_permissions set_user_limits
set_user_tags set_vhost_limits set_vhost_tags set_vm_memory_high_watermark shutdown start_app status stop
stop_app stream_status suspend_listeners sync_queue tls_versions trace_off trace_on update_cluster_nodes version
wait
"""


def test_every_command_of_rabbitmq_is_supported_or_listed_as_unsupported() -> None:
    rabbitmq = set(RABBITMQ.split())
    assert rabbitmq <= {*registry.names(), *UNSUPPORTED}
    assert not set(registry.names()) & UNSUPPORTED.keys()
    assert UNSUPPORTED.keys() <= rabbitmq


def test_an_unsupported_command_prints_the_reason() -> None:
    assert Leveretctl(None)("stop_app") == CommandResult(
        64,
        "",
        "\nCommand 'stop_app' not found. \n"
        "Leveret does not support it: start and stop the broker process; SIGTERM stops it.\n",
    )


def test_names_are_unique() -> None:
    assert len(registry.names()) == len(set(registry.names())) == len(COMMANDS)


@each_command
def test_a_command_is_whole(command: Command) -> None:
    assert registry.find(command.name) is command
    assert command.section in SECTIONS
    assert command.summary
    assert set(command.options) <= OPTION_TYPES.keys()
    assert command.max_arguments is None or command.min_arguments <= command.max_arguments


@each_command
def test_a_command_explains_its_options(command: Command) -> None:
    text = command_help(command, terminal=False)
    assert usage(command) in text
    for option in command.options:
        written = "no-table-headers" if option == "table-headers" else option
        assert f"--{written}" in text
    for column in command.columns:
        assert column in text


def test_the_overview_names_all_commands() -> None:
    lines = command_list(terminal=False).splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("   ")]
    assert sorted(listed) == registry.names()


def test_no_section_is_empty() -> None:
    assert {command.section for command in COMMANDS} == set(SECTIONS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("list_queue", "list_queues"), ("setpolicy", "set_policy"), ("list_polices", "list_policies"), ("zzz", None)],
)
def test_a_misspelt_name_is_recognised(typed: str, meant: str | None) -> None:
    assert registry.closest_name(typed) == meant


def test_the_program_is_installed_under_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["leveretctl"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
