"""Connections, channels and consumers on the command line: listed, and closed."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.wire import Channel, Connection


def rows(ctl: Leveretctl, *arguments: str) -> list[list[str]]:
    return [row.split("\t") for row in ctl.output(*arguments, "-s").splitlines()]


def test_list_connections(ctl: Leveretctl, vhost: str, connection: Connection) -> None:
    columns = ("name", "user", "peer_host", "state", "vhost", "ssl", "ssl_protocol", "protocol", "auth_mechanism")
    found = [row for row in rows(ctl, "list_connections", *columns) if row[4] == vhost]
    name = connection.name
    assert found == [[name, "guest", "127.0.0.1", "running", vhost, "false", "", "{0,9,1}", "PLAIN"]]


def test_list_connections_as_the_java_suite_reads_it(leveret: LeveretProcess, ctl: Leveretctl, vhost: str) -> None:
    with Connection(
        f"{leveret.url}/{vhost}", client_properties=[("product", "S", "x"), ("connection_name", "S", "demo")]
    ):
        shown = ctl.output("list_connections", "-q", "pid", "peer_port", "client_properties")
    header, *found = shown.splitlines()
    assert header == "pid\tpeer_port\tclient_properties"
    (row,) = [row.split("\t") for row in found if '{"connection_name","demo"}' in row]
    pid, port, properties = row
    assert pid.startswith("<")
    assert pid.endswith(">")
    assert " " not in pid
    assert port.isdigit()
    assert '{"product","x"}' in properties


def test_list_channels(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    channel.publish("", "q", b"1")
    channel.sync()
    assert channel.get("q")
    columns = ("pid", "connection", "name", "number", "user", "vhost", "confirm", "messages_unacknowledged")
    name = channel.connection.name
    short = name.replace(" -> ", "->")
    (found,) = [row for row in rows(ctl, "list_channels", *columns) if row[5] == vhost]
    assert found == [f"<{short}.1>", f"<{short}>", f"{name} (1)", "1", "guest", vhost, "false", "1"]


def test_list_consumers(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    channel.consume("q", "tag", arguments=[("x-priority", "I", 5)])
    short = channel.connection.name.replace(" -> ", "->")
    assert ctl.output("list_consumers", "-p", vhost) == (
        f"Listing consumers in vhost {vhost} ...\n"
        "queue_name\tchannel_pid\tconsumer_tag\tack_required\tprefetch_count\tactive\targuments\n"
        f'q\t<{short}.1>\ttag\ttrue\t0\ttrue\t[{{"x-priority",5}}]\n'
    )
    shown = json.loads(ctl.output("list_consumers", "-p", vhost, "--formatter", "json", "arguments", "queue_name"))
    assert shown == [{"queue_name": "q", "arguments": [["x-priority", "long", 5]]}]


@pytest.mark.parametrize("by", ["pid", "name"])
def test_close_connection(ctl: Leveretctl, connection: Connection, by: str) -> None:
    name = connection.name
    identifier = name if by == "name" else f"<{name.replace(' -> ', '->')}>"
    with connection.expect_connection_close(320, "CONNECTION_FORCED - bye, then"):
        ran = ctl("close_connection", identifier, "bye, then")
        assert ran == CommandResult(0, f"Closing connection {identifier}, reason: bye, then...\n", "")
    # It is gone: as good as closed.
    assert ctl("close_connection", identifier, "again", "-q") == CommandResult(0, "", "")


def test_close_connection_with_a_reason_beyond_ascii(ctl: Leveretctl, connection: Connection) -> None:
    with connection.expect_connection_close(320, "CONNECTION_FORCED - für später"):
        ctl.output("close_connection", connection.name, "für später")


def test_close_all_connections_of_a_vhost(leveret: LeveretProcess, ctl: Leveretctl, vhost: str) -> None:
    with Connection(leveret.url) as other, ExitStack() as stack:
        opened = [stack.enter_context(Connection(f"{leveret.url}/{vhost}")) for _ in range(3)]
        ran = ctl("close_all_connections", "-p", vhost, "maintenance", "--limit", "1")
        assert ran == CommandResult(
            0, f"Closing 1 connections in vhost {vhost}, reason: maintenance...\nClosed 1 connections\n", ""
        )
        ran = ctl("close_all_connections", "-p", vhost, "maintenance", "--per-connection-delay", "1")
        assert ran == CommandResult(
            0, f"Closing all connections in vhost {vhost}, reason: maintenance...\nClosed 2 connections\n", ""
        )
        for connection in opened:
            with connection.expect_connection_close(320, "CONNECTION_FORCED - maintenance"):
                pass
        other.channel().close()


def test_close_all_connections_everywhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LeveretProcess(tmp_path_factory.mktemp("own")) as own:
        ctl = Leveretctl(own.http_url)
        node = json.loads(ctl.output("set_cluster_name", "x", "--formatter", "json"))["node"]
        expected = f"Closing all connections to node {node} (across all vhosts), reason: r...\nClosed 1 connections\n"
        with Connection(own.url) as connection, connection.expect_connection_close(320, "CONNECTION_FORCED - r"):
            assert ctl("close_all_connections", "--global", "r") == CommandResult(0, expected, "")


def test_close_all_user_connections(leveret: LeveretProcess, ctl: Leveretctl, vhost: str) -> None:
    user = f"user-{vhost}"
    ctl.output("add_user", user, "pw")
    ctl.output("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
    url = f"{leveret.url}/{vhost}"
    with Connection(url, user=user, password="pw") as theirs, Connection(url) as ours:
        with theirs.expect_connection_close(320, "CONNECTION_FORCED - reason"):
            ran = ctl("close_all_user_connections", user, "reason")
            assert ran == CommandResult(0, f"Closing connections of user {user}, reason: reason...\n", "")
        ours.channel().close()
    ctl.output("delete_user", user)
