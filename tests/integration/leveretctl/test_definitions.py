"""Definitions written and read by the command line."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.wire import Channel


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Leveretctl]:
    """Commands for a second, empty broker."""
    with LeveretProcess(tmp_path) as process:
        yield Leveretctl(process.http_url)


def make_something(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.exchange_declare("x", "topic", durable=True)
    channel.queue_declare("q", durable=True, arguments=[("x-max-length", "l", 7)])
    channel.queue_bind("q", "x", "a.#", arguments=[("n", "I", 1)])
    ctl.output("set_policy", "-p", vhost, "p", "^q", '{"max-length":5}')
    ctl.output("add_user", f"{vhost}-user", "secret")
    ctl.output("set_permissions", "-p", vhost, f"{vhost}-user", "^c", "^w", "^r")


LISTS = (
    ("list_queues", "name", "durable", "arguments", "policy"),
    ("list_exchanges", "name", "type", "durable"),
    ("list_bindings",),
    ("list_policies",),
    ("list_permissions",),
)


def test_export_and_import(ctl: Leveretctl, other: Leveretctl, vhost: str, channel: Channel, tmp_path: Path) -> None:
    make_something(ctl, vhost, channel)
    file = tmp_path / "definitions.json"
    ran = ctl("export_definitions", str(file))
    assert ran == CommandResult(0, f'Exporting definitions in JSON to a file at "{file}" ...\n', "")
    # It holds password hashes.
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ran = other("import_definitions", str(file))
    assert ran == CommandResult(
        0,
        f'Importing definitions in JSON from a file at "{file}" ...\n'
        "Successfully started definition import. This process is asynchronous and can take some time.\n",
        "",
    )
    for command in LISTS:
        assert other.output(*command, "-p", vhost, "-q") == ctl.output(*command, "-p", vhost, "-q")
    assert other("authenticate_user", f"{vhost}-user", "secret").status == 0
    ctl.output("delete_user", f"{vhost}-user")


def test_export_to_standard_output(ctl: Leveretctl, other: Leveretctl, vhost: str, channel: Channel) -> None:
    make_something(ctl, vhost, channel)
    exported = ctl.output("export_definitions", "-")
    assert [queue["name"] for queue in json.loads(exported)["queues"] if queue["vhost"] == vhost] == ["q"]
    assert other("import_definitions", "-q", stdin=exported).status == 0
    assert other.output("list_queues", "-p", vhost, "name", "-s") == "q\n"
    ctl.output("delete_user", f"{vhost}-user")


def test_what_an_import_leaves_out(ctl: Leveretctl, vhost: str) -> None:
    upstream = {"component": "federation-upstream", "name": "s", "vhost": vhost, "value": {}}
    document = "\ufeff" + json.dumps({"parameters": [upstream]})
    text = f"left out: parameters: 's' of component 'federation-upstream' in vhost '{vhost}'"
    assert ctl.output("import_definitions", "-", stdin=document).endswith(f"take some time.\n{text}\n")
    shown = json.loads(ctl.output("import_definitions", "-", "--formatter", "json", stdin=document))
    assert shown["message"] == text


def test_import_in_parts(ctl: Leveretctl, vhost: str) -> None:
    count = 1_200
    common = {"vhost": vhost, "durable": False, "auto_delete": False, "arguments": {}}
    definitions = {
        "bindings": [
            {"vhost": vhost, "source": "x0", "destination": f"q{number}", "destination_type": "queue",
             "routing_key": "k", "arguments": {}}
            for number in range(count)
        ],
        "queues": [{"name": f"q{number}", **common} for number in range(count)],
        "exchanges": [{"name": "x0", "type": "fanout", "internal": False, **common}],
        "policies": [
            {"vhost": vhost, "name": "p", "pattern": "q1", "definition": {"max-length": 1}, "priority": 0,
             "apply-to": "all"}
        ],
    }  # fmt: skip
    ran = ctl("import_definitions", "-q", stdin=json.dumps(definitions))
    assert (ran.status, ran.err) == (0, "")
    assert len(ctl.output("list_queues", "-p", vhost, "name", "-s").splitlines()) == count
    shown = ctl.output("list_bindings", "-p", vhost, "source_name", "-s").splitlines()
    assert shown.count("x0") == count
    assert ctl.output("list_policies", "-p", vhost, "-s").startswith(f"{vhost}\tp\t")


@pytest.mark.parametrize("text", ["", "notjson", "[1]", "5", "{", "\udce4"])
def test_import_of_what_is_no_object(ctl: Leveretctl, text: str) -> None:
    ran = ctl("import_definitions", "-q", stdin=text)
    assert (ran.status, ran.out) == (65, "")
    assert ran.err.startswith("Error:\nFailed to deserialise input (format: JSON)")


def test_import_from_a_pipe(ctl: Leveretctl, vhost: str, tmp_path: Path) -> None:
    """As the shell's `<(jq … definitions.json)` gives one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = json.dumps({"queues": [{"name": "piped", "vhost": vhost, "durable": True, "arguments": {}}]})
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pipe.write_text, text)
        ctl.output("import_definitions", str(pipe))
    assert ctl.output("list_queues", "-p", vhost, "-s", "name") == "piped\n"


def test_import_from_a_directory(ctl: Leveretctl, tmp_path: Path) -> None:
    ran = ctl("import_definitions", "-q", str(tmp_path))
    assert ran == CommandResult(65, "", f"Error:\nCould not read {tmp_path}: Is a directory\n")


def test_what_the_broker_refuses(ctl: Leveretctl, vhost: str) -> None:
    policy = {"vhost": vhost, "name": "p", "pattern": "", "definition": {"max-length": -1}}
    ran = ctl("import_definitions", "-q", stdin=json.dumps({"policies": [policy]}))
    assert ran.status == 69
    assert "-1 is not a valid maximum length" in ran.err


def test_erlang_terms_are_refused(ctl: Leveretctl) -> None:
    for command in (("export_definitions", "-"), ("import_definitions",)):
        status, _, err = ctl(*command, "--format", "erlang")
        assert status == 65
        assert err.startswith("Error (argument validation): Bad argument: Leveret does not support Erlang terms")


def test_a_file_that_cannot_be_written(ctl: Leveretctl, tmp_path: Path) -> None:
    ran = ctl("export_definitions", str(tmp_path), "-q")
    assert ran == CommandResult(65, "", f"Error:\nPath {tmp_path} is a directory\n")
