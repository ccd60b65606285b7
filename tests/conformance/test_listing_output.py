"""Rules 3.5.1 to 3.5.11: what lists look like on the command line."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.conftest import Broker
from tests.conformance.fixtures import Poll
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.management import Management

VHOST = "seed"
QUEUES: dict[str, dict[str, Any]] = {
    "lazy-queue": {"durable": True, "arguments": {"x-queue-mode": "lazy", "x-queue-type": "classic"}},
    "one-meg": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "two-messages": {"arguments": {"x-max-length": 7, "x-queue-type": "classic"}},
}
TRANSCRIPT_QUEUES = """\
┌──────────────┬─────────┬───────────────────────────────────────────────────────────────────────────────────┬────────┐
│ name         │ durable │ arguments                                                                         │ policy │
├──────────────┼─────────┼───────────────────────────────────────────────────────────────────────────────────┼────────┤
│ lazy-queue   │ true    │ {<<"x-queue-mode">>,longstr,<<"lazy">>}{<<"x-queue-type">>,longstr,<<"classic">>} │        │
├──────────────┼─────────┼───────────────────────────────────────────────────────────────────────────────────┼────────┤
│ one-meg      │ true    │ {<<"x-queue-type">>,longstr,<<"classic">>}                                        │ Ten    │
├──────────────┼─────────┼───────────────────────────────────────────────────────────────────────────────────┼────────┤
│ two-messages │ false   │ {<<"x-max-length">>,long,7}{<<"x-queue-type">>,longstr,<<"classic">>}             │ my-pol │
└──────────────┴─────────┴───────────────────────────────────────────────────────────────────────────────────┴────────┘
"""
TRANSCRIPT_POLICIES = """\
┌{0}──┬────────┬────────────────┬──────────┬──────────────────────────────────────────────┬──────────┐
│ {1} │ name   │ pattern        │ apply-to │ definition                                   │ priority │
├{0}──┼────────┼────────────────┼──────────┼──────────────────────────────────────────────┼──────────┤
│ {2} │ Ten    │ ^one-meg$      │ queues   │ {{"max-length-bytes":1000000}}                 │ 0        │
├{0}──┼────────┼────────────────┼──────────┼──────────────────────────────────────────────┼──────────┤
│ {2} │ my-pol │ ^two-messages$ │ all      │ {{"max-length":2,"overflow":"reject-publish"}} │ 0        │
└{0}──┴────────┴────────────────┴──────────┴──────────────────────────────────────────────┴──────────┘
"""
# fmt: off
COLUMNS_3_10 = [
    "name", "durable", "auto_delete", "arguments", "policy", "pid", "owner_pid", "exclusive",
    "exclusive_consumer_pid", "exclusive_consumer_tag", "messages_ready", "messages_unacknowledged", "messages",
    "messages_ready_ram", "messages_unacknowledged_ram", "messages_ram", "messages_persistent", "message_bytes",
    "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram", "message_bytes_persistent",
    "head_message_timestamp", "disk_reads", "disk_writes", "consumers", "consumer_utilisation", "consumer_capacity",
    "memory", "slave_pids", "synchronised_slave_pids", "state", "type", "leader", "members", "online",
]
# fmt: on


@pytest.fixture(scope="module")
def ctl(broker: Broker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture(scope="module")
def empty(ctl: Leveretctl) -> Iterator[str]:
    """A virtual host with nothing in it."""
    name = f"empty-{uuid.uuid4().hex[:8]}"
    ctl.output("add_vhost", name)
    yield name
    ctl.output("delete_vhost", name)


@pytest.fixture(scope="module")
def filled(ctl: Leveretctl, management: Management, poll: Poll) -> Iterator[str]:
    """A virtual host with the queues and policies of the transcripts."""
    name = f"{VHOST}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        ctl.output("add_vhost", name)
        stack.callback(ctl.output, "delete_vhost", name)
        fill(ctl, management, poll, name)
        yield name


def fill(ctl: Leveretctl, management: Management, poll: Poll, name: str) -> None:
    """Make the queues and policies of the transcripts in a virtual host."""
    for queue, document in QUEUES.items():
        management.request("PUT", "queues", name, queue, body=document)
    ctl.output("set_policy", "-p", name, "Ten", "^one-meg$", '{"max-length-bytes":1000000}', "--apply-to", "queues")
    definition = '{"max-length":2,"overflow":"reject-publish"}'
    ctl.output("set_policy", "-p", name, "my-pol", "^two-messages$", definition)
    # RabbitMQ tells all about a new queue only after a while; its lists stay behind if they are asked for before.
    told = {"lazy-queue": None, "one-meg": "Ten", "two-messages": "my-pol"}
    for queue, policy in told.items():
        poll(lambda: management.request("GET", "queues", name, queue).get("policy", "") == policy)  # noqa: B023


def test_the_transcript_of_queues(ctl: Leveretctl, filled: str) -> None:
    columns = ("name", "durable", "arguments", "policy")
    ran = ctl("list_queues", *columns, "--formatter=pretty_table", "--silent", "-p", filled)
    assert ran == CommandResult(0, TRANSCRIPT_QUEUES, "")


def test_the_transcript_of_policies(ctl: Leveretctl, filled: str) -> None:
    ran = ctl("list_policies", "--formatter=pretty_table", "--silent", "-p", filled)
    expected = TRANSCRIPT_POLICIES.format("─" * len(filled), f"{'vhost':{len(filled)}}", filled)
    assert ran == CommandResult(0, expected, "")


def test_3_5_1_list_policies(ctl: Leveretctl, filled: str) -> None:
    ctl.output("set_policy", "-p", filled, "first", "^$", '{"expires":5,"max-length":1}', "--priority", "-1")
    ctl.output("set_policy", "-p", filled, "last", "^$", '{"max-length":1}', "--priority", "2")
    assert ctl.output("list_policies", "-p", filled) == (
        f'Listing policies for vhost "{filled}" ...\n'
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        f'{filled}\tfirst\t^$\tall\t{{"expires":5,"max-length":1}}\t-1\n'
        f'{filled}\tTen\t^one-meg$\tqueues\t{{"max-length-bytes":1000000}}\t0\n'
        f'{filled}\tmy-pol\t^two-messages$\tall\t{{"max-length":2,"overflow":"reject-publish"}}\t0\n'
        f'{filled}\tlast\t^$\tall\t{{"max-length":1}}\t2\n'
    )
    for name in ("first", "last"):
        ctl.output("clear_policy", "-p", filled, name)


def test_3_5_2_list_operator_policies(ctl: Leveretctl, filled: str) -> None:
    ctl.output("set_operator_policy", "-p", filled, "op", "^$", '{"max-length":7}', "--apply-to", "queues")
    assert ctl.output("list_operator_policies", "-p", filled) == (
        f'Listing operator policy overrides for vhost "{filled}" ...\n'
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        f'{filled}\top\t^$\tqueues\t{{"max-length":7}}\t0\n'
    )
    ctl.output("clear_operator_policy", "-p", filled, "op")


BANNER = "Timeout: 60.0 seconds ...\nListing queues for vhost {} ...\n"
HEADER = "name\tmessages\n"
ROWS = "lazy-queue\t0\none-meg\t0\ntwo-messages\t0\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), BANNER + HEADER + ROWS),
        (("--quiet",), HEADER + ROWS),
        (("-q",), HEADER + ROWS),
        (("--silent",), ROWS),
        (("-s",), ROWS),
        (("-qs",), ROWS),
        (("--no-table-headers",), BANNER + ROWS),
        (("-q", "--no-table-headers"), ROWS),
        (("--timeout", "5"), BANNER.replace("60", "5") + HEADER + ROWS),
        (("--online",), BANNER + HEADER + ROWS),
        (("--local",), BANNER + HEADER + ROWS),
        (("--offline",), BANNER),
        (("name,messages",), BANNER + HEADER + ROWS),
        (("name", "messages", "name"), BANNER + HEADER + ROWS),
    ],
)
def test_3_5_3_banners_and_header(ctl: Leveretctl, filled: str, options: tuple[str, ...], expected: str) -> None:
    assert ctl.output("list_queues", "-p", filled, *options) == expected.format(filled)


def test_3_5_3_silent_keeps_the_header_of_other_formatters(ctl: Leveretctl, filled: str) -> None:
    shown = ctl.output("list_queues", "-p", filled, "--silent", "--formatter=pretty_table", "name")
    assert shown.splitlines()[1] == "│ name         │"
    assert ctl.output("list_queues", "-p", filled, "--silent", "--formatter=csv", "name").startswith('"name"\n')


def test_3_5_4_all_columns(ctl: Leveretctl, filled: str) -> None:
    header, *rows = ctl.output("list_queues", "-p", filled, "-q", *COLUMNS_3_10).splitlines()
    assert header.split("\t") == COLUMNS_3_10
    assert [len(row.split("\t")) for row in rows] == [len(COLUMNS_3_10)] * len(QUEUES)


@pytest.mark.parametrize(
    ("columns", "named"), [(["bogus"], "bogus"), (["name", "zz", "aa"], "aa,zz"), (["messages_paged_out"],) * 2]
)
def test_3_5_4_unknown_columns(ctl: Leveretctl, filled: str, columns: list[str], named: Any) -> None:
    named = named if isinstance(named, str) else named[0]
    status, out, err = ctl("list_queues", "-p", filled, *columns)
    assert (status, out) == (64, "")
    assert err.startswith(f"Error (argument validation): Info key(s) {named} are not supported\nArguments given:\n\t")


def test_3_5_5_columns_of_newer_releases(ctl: Leveretctl, filled: str, poll: Poll) -> None:
    columns = ("name", "policy", "operator_policy", "effective_policy_definition")
    ctl.output("set_operator_policy", "-p", filled, "op", "^two", '{"max-length":1}')
    expected = (
        "lazy-queue\t\t\t{}\n"
        'one-meg\tTen\t\t{"max-length-bytes":1000000}\n'
        'two-messages\tmy-pol\top\t{"max-length":1,"overflow":"reject-publish"}\n'
    )
    # RabbitMQ's answer is up to five seconds old.
    poll(lambda: ctl.output("list_queues", "-p", filled, "-s", *columns) == expected)
    ctl.output("clear_operator_policy", "-p", filled, "op")


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        ("table", '[{"x-max-length",7},{"x-queue-type","classic"}]\n'),
        ("csv", '"arguments"\n"[{""x-max-length"",7},{""x-queue-type"",""classic""}]"\n'),
        ("json", '[\n{"arguments":[["x-max-length","long",7],["x-queue-type","longstr","classic"]]}\n]\n'),
    ],
)
def test_3_5_6_arguments(ctl: Leveretctl, management: Management, empty: str, formatter: str, expected: str) -> None:
    management.request("PUT", "queues", empty, "two", body=QUEUES["two-messages"])
    shown = ctl.output("list_queues", "-p", empty, "arguments", "-s", f"--formatter={formatter}")
    management.request("DELETE", "queues", empty, "two")
    assert shown == expected


def test_3_5_6_no_arguments(ctl: Leveretctl, management: Management, empty: str) -> None:
    shown = ctl.output("list_exchanges", "-p", empty, "name", "arguments", "-s")
    assert "amq.fanout\t[]\n" in shown
    table = ctl.output("list_exchanges", "-p", empty, "name", "arguments", "-s", "--formatter", "pretty_table")
    assert "│ amq.fanout         │           │" in table.splitlines()


def test_3_5_7_no_bold_unless_on_a_terminal(ctl: Leveretctl, filled: str) -> None:
    for formatter in ("table", "pretty_table"):
        assert "\x1b" not in ctl.output("list_queues", "-p", filled, "--formatter", formatter)


def test_3_5_8_booleans_and_missing_values(ctl: Leveretctl, filled: str) -> None:
    shown = ctl.output("list_queues", "-p", filled, "-s", "name", "durable", "policy")
    assert shown == "lazy-queue\ttrue\t\none-meg\ttrue\tTen\ntwo-messages\tfalse\tmy-pol\n"
    assert ctl.output("list_queues", "-p", filled, "-s", "disk_reads") == "0\n0\n0\n"


OUTPUT_OF_NOTHING = "┌────────┐\n│ Output │\n├────────┤\n│ []     │\n└────────┘\n"


@pytest.mark.parametrize(
    ("command", "formatter", "expected"),
    [
        ("list_queues", "table", BANNER),
        ("list_queues", "json", "[\n]\n"),
        ("list_queues", "pretty_table", BANNER),
        ("list_queues", "csv", ""),
        # The empty line is RabbitMQ's.
        ("list_policies", "table", 'Listing policies for vhost "{}" ...\n\n'),
        ("list_policies", "json", "[]\n"),
        ("list_policies", "pretty_table", 'Listing policies for vhost "{}" ...\n' + OUTPUT_OF_NOTHING),
    ],
)
def test_3_5_9_nothing_to_list(ctl: Leveretctl, empty: str, command: str, formatter: str, expected: str) -> None:
    assert ctl.output(command, "-p", empty, "--formatter", formatter) == expected.format(empty)


def test_3_5_10_json(ctl: Leveretctl, filled: str) -> None:
    shown = ctl.output("list_policies", "-p", filled, "--formatter=json")
    definition = r'"{\"max-length\":2,\"overflow\":\"reject-publish\"}"'
    assert shown == (
        "[\n"
        f'{{"vhost":"{filled}","name":"Ten","pattern":"^one-meg$","apply-to":"queues",'
        '"definition":"{\\"max-length-bytes\\":1000000}","priority":0}\n'
        f',{{"vhost":"{filled}","name":"my-pol","pattern":"^two-messages$","apply-to":"all",'
        f'"definition":{definition},"priority":0}}\n'
        "]\n"
    )
    assert [row["name"] for row in json.loads(shown)] == ["Ten", "my-pol"]


def test_3_5_10_csv(ctl: Leveretctl, filled: str) -> None:
    assert ctl.output("list_policies", "-p", filled, "--formatter=csv") == (
        '"vhost","name","pattern","apply-to","definition","priority"\n'
        f'"{filled}","Ten","^one-meg$","queues","{{""max-length-bytes"":1000000}}","0"\n'
        f'"{filled}","my-pol","^two-messages$","all","{{""max-length"":2,""overflow"":""reject-publish""}}","0"\n'
    )


@pytest.mark.parametrize(
    ("command", "banner"),
    [
        ("list_queues", BANNER),
        ("list_exchanges", "Listing exchanges for vhost {} ...\n"),
        ("list_bindings", "Listing bindings for vhost {}...\n"),
        ("list_consumers", "Listing consumers in vhost {} ...\n"),
    ],
)
def test_3_5_11_an_unknown_vhost_has_nothing(ctl: Leveretctl, command: str, banner: str) -> None:
    assert ctl(command, "-p", "no-such") == CommandResult(0, banner.format("no-such"), "")


@pytest.mark.parametrize(
    ("command", "banner"),
    [
        ("list_policies", "Listing policies for vhost"),
        ("list_operator_policies", "Listing operator policy overrides for vhost"),
        ("list_parameters", "Listing runtime parameters for vhost"),
        ("list_permissions", "Listing permissions for vhost"),
        ("list_topic_permissions", "Listing topic permissions for vhost"),
        ("list_vhost_limits", "Listing limits for vhost"),
    ],
)
def test_3_5_11_an_unknown_vhost_is_an_error(ctl: Leveretctl, command: str, banner: str) -> None:
    expected = CommandResult(65, f'{banner} "no-such" ...\n', "Virtual host 'no-such' does not exist\n")
    assert ctl(command, "-p", "no-such") == expected
