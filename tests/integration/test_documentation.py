"""What README.md and docs/ show works as printed."""

from __future__ import annotations

import re
import shlex
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.broker.config.load import load
from leveret.broker.config.options import OPTIONS
from leveret.broker.version import VERSION
from tests.integration.certificates import Authority
from tests.integration.program import run, running
from tests.support.documentation import PAGES, ROOT, block, blocks, inline_code, prose
from tests.support.documentation_walk import Walk
from tests.support.management import Management
from tests.support.wire import Connection

_TIMEOUT = 180


# --- the start ----------------------------------------------------------------------------------------------------


def test_ready_line(tmp_path: Path) -> None:
    """The line that the reader is told to look for has the form of the real one."""
    shown = block("", " ready ").strip()
    with running(tmp_path) as program:
        assert _form(program.ready_line) == _form(shown)


def _form(line: str) -> str:
    return re.sub(r"=\S+", "=", line)


# --- configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", blocks("yaml"), ids=range(len(blocks("yaml"))))
def test_configuration_starts_a_broker(tmp_path: Path, content: str) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(content.replace("/var/log/leveret", str(tmp_path)))
    settings = load(file, {})
    if settings.replication.register != "none":
        # It would wait for the register.
        return
    with running(tmp_path, "--config", str(file)) as program, Connection(program.url) as connection:
        connection.channel()


def test_check_of_a_configuration(tmp_path: Path) -> None:
    """With a file from the documentation; what it prints can be used again, secrets apart."""
    command = shlex.split(block("sh", "check-config --config"))
    assert command.pop(0) == ".venv/bin/leveret"
    file = tmp_path / command[command.index("--config") + 1]
    file.write_text(block("yaml", "users:"))
    checked = run(*[str(file) if word == file.name else word for word in command])
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"heartbeat: 30  # {file}:" in checked.stdout
    again = tmp_path / "again.yaml"
    again.write_text(checked.stdout)
    assert "change-me" not in checked.stdout
    assert load(again, {}).heartbeat == load(file, {}).heartbeat


def test_configured_users_and_heartbeat(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(block("yaml", "users:"))
    settings = load(file, {})
    with (
        running(tmp_path, "--config", str(file)) as program,
        Connection(program.url, user="admin", password="change-me", vhost="shop") as admin,
        Connection(program.url, user="clerk", password="change-me", vhost="shop") as clerk,
    ):
        assert clerk.tune.heartbeat == settings.heartbeat == 30
        channel = clerk.channel()
        channel.publish("", "orders", b"one")
        got = channel.get("orders")
        assert got is not None
        channel.ack(got.delivery_tag)
        text = "ACCESS_REFUSED - access to queue 'more' in vhost 'shop' refused for user 'clerk'"
        with channel.expect_channel_close(403, text):
            channel.queue_declare("more")
        admin.channel().queue_declare("more")
        Management(f"http://admin:change-me@{program.addresses['management']}").request("GET", "overview")


def test_policy_over_http_and_in_the_file(tmp_path: Path) -> None:
    """The request and the file set the same policy."""
    file = tmp_path / "leveret.yaml"
    file.write_text(block("yaml", "policies:"))
    policies = []
    for name, options in (("http", ()), ("file", ("--config", str(file)))):
        directory = tmp_path / name
        directory.mkdir()
        with running(directory, *options) as program:
            if name == "http":
                Walk(**program.addresses).do(block("sh", "curl").replace("\\\n", " "))
            policies.append(Management(program.http_url).request("GET", "policies", "/", "bounded"))
    assert policies[0] == policies[1]
    assert policies[0]["definition"] == {"max-length": 1000000, "overflow": "reject-publish"}
    assert re.search(policies[0]["pattern"], "work.q")
    assert not re.search(policies[0]["pattern"], "workshop")


# --- commands -----------------------------------------------------------------------------------------------------


def test_make_run(tmp_path: Path) -> None:
    """`make run` from a checkout whose environment is there; the arguments take care of ports and data."""
    assert "make run\n" in blocks("sh", "README.md")
    ports = "--port 0 --management-port 0 --prometheus-port 0 --host 127.0.0.1"
    command = ["make", "--silent", "run", f"ARGS={ports} --data-dir {tmp_path}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(f"leveret {VERSION} ready amqp=127.0.0.1:")
        finally:
            process.terminate()


def test_tls(tmp_path: Path) -> None:
    """The options of the printed command, with free ports and the files that it names."""
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    words = shlex.split(block("sh", "--amqps-port").replace("\\\n", " "))
    assert words.pop(0) == ".venv/bin/leveret"
    files = {"server.pem": issued.certificate, "server.key": issued.key}
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if value in files:
            words[at] = f"{name}={files.pop(value)}"
        elif word.isdigit():
            words[at] = "0"
    assert not files
    with running(tmp_path, *words) as program:
        context = ssl.create_default_context(cafile=str(authority.file))
        host, _, port = program.addresses["amqps"].rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=_TIMEOUT) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as secured,
        ):
            secured.sendall(b"AMQP\0\0\x09\x01")
            assert secured.recv(1) == b"\1"


# --- names --------------------------------------------------------------------------------------------------------


def test_flags_exist() -> None:
    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    texts = [shown.stdout]
    # A flag in code without a program's name may be leveretctl's or leveret-analytics' too.
    helps = [
        ["leveret.broker.leveretctl", "help", each]
        for each in (
            "list_queues",
            "set_policy",
            "list_losses",
            "delete_messages",
            "explain_access",
            "migrate",
            "move_messages",
            "promote",
            "list_delayed_messages",
            "list_delayed_retries",
            "browse",
            "check_backlog",
            "replay",
            "return_messages",
        )
    ]
    others = ["leveret.analytics.program", "tests.matrix", "tests.bench.stream", "tests.bench.scan"]
    others += ["tests.bench.archive", "tests.bench.backup", "tests.bench.replication", "tests.bench.takeovers"]
    others += ["tests.crash.damage_table", "tests.torture", "tests.torture.liveness", "tests.torture.other_broker"]
    others += ["tests.torture.iceberg_tables", "tests.torture.backups", "tests.torture.moments"]
    helps += [[module, "--help"] for module in others]
    helps += [["leveret.analytics.program", each, "--help"] for each in ("archive", "iceberg")]
    helps += [["leveret.analytics.backup", each, "--help"] for each in ("backup", "restore", "verify")]
    for words in helps:
        help_of = [sys.executable, "-m", *words]
        texts.append(subprocess.run(help_of, capture_output=True, text=True, timeout=_TIMEOUT, check=True).stdout)
    documented = {flag for text in texts for flag in re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", text)}
    named = {flag for code in inline_code() for flag in re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", code)}
    assert {"--config", "--set", "--port", "--help"} <= named
    assert named <= documented


def test_files_exist() -> None:
    """Those that the guide for contributors names."""
    named = set(re.findall(r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:md|toml|txt))`", PAGES["CONTRIBUTING.md"]))
    assert {"protocol/methods.py", "policies/policy_keys.py", "broker/config/options.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_options_exist() -> None:
    """Those in code of the forms `name: value`, `--set name=value` and `LEVERET_NAME=value`."""
    named = {name for code in inline_code() for name in re.findall(r"^([a-z_]+(?:\.[a-z_]+)*): ", code)}
    named |= {name for code in inline_code() for name in re.findall(r"--set ([a-z_.]+)=", code)}
    assert {"heartbeat", "load_definitions", "compat.advertise"} <= named
    assert named <= set(OPTIONS)
    variables = {name for code in inline_code() for name in re.findall(r"\b(LEVERET_[A-Z_]+)=", code)}
    # The last one is for installing and loading modules.
    assert variables <= {option.environment for option in OPTIONS.values()} | {"LEVERET_COMPILE"}


def _anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", prose(page)) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert target.is_file(), link
        name = str(target.relative_to(ROOT))
        assert not anchor or name not in PAGES or anchor in _anchors(name), link
