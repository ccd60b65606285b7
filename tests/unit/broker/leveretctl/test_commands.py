"""The commands, their modules, options and help fit together; the parser, and the address that options name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.leveretctl import commands, known_commands
from leveret.broker.leveretctl.command import COMMANDS as REGISTERED
from leveret.broker.leveretctl.command import Command
from leveret.broker.leveretctl.command_line import (
    GENERAL_OPTIONS,
    Address,
    InvalidOption,
    Value,
    parse_address,
    scan,
)
from leveret.broker.leveretctl.known_commands import command_help, command_list, usage
from tests.support.leveretctl import CommandResult, Leveretctl

ROOT = Path(__file__).parents[5]
COMMANDS = [known_commands.get(name) for name in known_commands.names()]

each_command = pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])


def test_the_registry_names_what_the_modules_have() -> None:
    directory = Path(str(commands.__file__)).parent
    assert {path.stem for path in directory.glob("*.py")} == {"__init__", *known_commands.MODULES.values()}
    assert sorted(REGISTERED) == known_commands.names()


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
    assert rabbitmq <= {*known_commands.names(), *known_commands.UNSUPPORTED}
    assert not set(known_commands.names()) & known_commands.UNSUPPORTED.keys()
    assert known_commands.UNSUPPORTED.keys() <= rabbitmq


def test_an_unsupported_command_prints_the_reason() -> None:
    assert Leveretctl(None)("stop_app") == CommandResult(
        64,
        "",
        "\nCommand 'stop_app' not found. \n"
        "Leveret does not support it: start and stop the broker process; SIGTERM stops it.\n",
    )


@each_command
def test_a_command_is_whole(command: Command) -> None:
    assert known_commands.find(command.name) is command
    assert command.summary


@each_command
def test_a_command_explains_its_options(command: Command) -> None:
    text = command_help(command, terminal=False)
    assert usage(command) in text
    for option in command.options:
        assert ("--no-table-headers" if option == "table-headers" else f"--{option}") in text
    for column in command.columns:
        assert column in text


def test_the_overview_names_all_commands() -> None:
    lines = command_list(terminal=False).splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("   ")]
    assert sorted(listed) == known_commands.names()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("list_queue", "list_queues"), ("setpolicy", "set_policy"), ("list_polices", "list_policies"), ("zzz", None)],
)
def test_a_misspelt_name_is_recognised(typed: str, meant: str | None) -> None:
    assert known_commands.closest_name(typed) == meant


POLICY = frozenset(("priority", "apply-to"))


@pytest.mark.parametrize(
    ("line", "arguments", "options"),
    [
        ("a b", ["a", "b"], {}),
        ("-p v a", ["a"], {"vhost": "v"}),
        ("a -p=v", ["a"], {"vhost": "v"}),
        ("--vhost v a", ["a"], {"vhost": "v"}),
        ("a --vhost=v", ["a"], {"vhost": "v"}),
        ("--vhost= a", ["a"], {"vhost": ""}),
        ("--vhost a=b=c", [], {"vhost": "a=b=c"}),
        ("-q a -s", ["a"], {"quiet": True, "silent": True}),
        ("-qs a", ["a"], {"quiet": True, "silent": True}),
        ("--quiet=true", [], {"quiet": True}),
        ("--quiet=false", [], {"quiet": False}),
        ("--no-quiet", [], {"quiet": False}),
        ("-? a", ["a"], {"help": True}),
        ("--priority 5 a", ["a"], {"priority": 5}),
        ("--priority -5 a", ["a"], {"priority": -5}),
        ("--priority=-5 a", ["a"], {"priority": -5}),
        ("--priority=+5", [], {"priority": 5}),
        ("a -5 -1.5", ["a", "-5", "-1.5"], {}),
        ("a -- -p v", ["a", "-p", "v"], {}),
        ("a - b", ["a", "-", "b"], {}),
        ("-p - a", ["a"], {"vhost": "-"}),
        ("-p v -p w", [], {"vhost": "w"}),
        ("-t 3", [], {"timeout": 3}),
        ("-n node@host -l a", ["a"], {"node": "node@host", "longnames": True}),
    ],
)
def test_found(line: str, arguments: list[str], options: dict[str, Value]) -> None:
    assert scan(line.split(), POLICY) == (arguments, options, [])


@pytest.mark.parametrize(
    ("line", "invalid"),
    [
        ("-p", [InvalidOption("-p", "")]),
        ("--vhost", [InvalidOption("--vhost", "")]),
        ("--vhost --quiet", [InvalidOption("--vhost", "")]),
        ("-x", [InvalidOption("-x", "")]),
        ("--nosuch", [InvalidOption("--nosuch", "")]),
        ("--nosuch=5", [InvalidOption("--nosuch", "")]),
        ("--if-empty", [InvalidOption("--if-empty", "")]),
        ("-e", [InvalidOption("-e", "")]),
        ("--priority x", [InvalidOption("--priority", "x")]),
        ("--priority 1.5", [InvalidOption("--priority", "1.5")]),
        ("--priority=", [InvalidOption("--priority", "")]),
        ("--priority +-5", [InvalidOption("--priority", "+-5")]),
        ("--timeout abc", [InvalidOption("--timeout", "abc")]),
        ("--quiet=maybe", [InvalidOption("--quiet", "maybe")]),
        ("-pv", [InvalidOption("-p", ""), InvalidOption("-v", "")]),
        ("--no-vhost", [InvalidOption("--no-vhost", "")]),
        ("--no-quiet=true", [InvalidOption("--no-quiet", "true")]),
        ("--limit 5", [InvalidOption("--limit", "")]),
    ],
)
def test_invalid(line: str, invalid: list[InvalidOption]) -> None:
    assert scan(line.split(), POLICY).invalid == invalid


def test_the_value_of_an_option_that_is_not_allowed_is_no_argument() -> None:
    assert scan(["--limit", "5", "a"], POLICY).arguments == ["a"]


def test_without_a_command_all_options_are_known() -> None:
    assert scan(["--limit", "5", "--if-empty", "a"]) == (["a"], {"limit": 5, "if-empty": True}, [])


def test_conditions_add_up() -> None:
    assert scan(["--filter", "a=1", "--filter=b=2"], frozenset(("filter",))).options == {"filter": "a=1\nb=2"}


@given(st.lists(st.text(max_size=6)))
def test_whatever_is_typed_is_taken_apart(argv: list[str]) -> None:
    found = scan(argv, POLICY)
    assert set(found.options) <= GENERAL_OPTIONS.keys() | POLICY
    # Nothing is made up: every argument was typed.
    assert set(found.arguments) <= set(argv)


@given(st.lists(st.text(min_size=1).filter(lambda word: not word.startswith("-"))))
def test_words_stay_as_they_are(words: list[str]) -> None:
    assert scan(words).arguments == words
    assert scan(["--", *words]).arguments == words


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", Address("http", "h", 15672, "", "guest", "guest")),
        ("h:1", Address("http", "h", 1, "", "guest", "guest")),
        ("https://h", Address("https", "h", 15671, "", "guest", "guest")),
        ("http://u:p@h:1/", Address("http", "h", 1, "", "u", "p")),
        ("http://u:@h:1", Address("http", "h", 1, "", "u", "")),
        ("http://u%40x:p%2F%3A@h", Address("http", "h", 15672, "", "u@x", "p/:")),
        ("http://h/prefix/", Address("http", "h", 15672, "/prefix", "guest", "guest")),
        ("http://h/prefix/api", Address("http", "h", 15672, "/prefix", "guest", "guest")),
        ("http://[::1]:5", Address("http", "::1", 5, "", "guest", "guest")),
    ],
)
def test_parse(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize("url", ["amqp://h", "http://", "http://h:port", "http://h:99999", "ftp://h", "http://[::1"])
def test_no_url(url: str) -> None:
    with pytest.raises(ValueError):
        parse_address(url)


def test_shown() -> None:
    assert str(parse_address("http://u:secret@h:1")) == "h:1"
    assert str(parse_address("http://[::1]:1")) == "[::1]:1"
