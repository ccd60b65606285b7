"""The broker as a program: what it prints, how it stops, what it exits with."""

from __future__ import annotations

import os
import re
import resource
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp import commands

from leveret import compilation
from leveret.broker.version import VERSION
from tests.integration.program import ROOT, Program, run, running
from tests.integration.waiting import wait_until
from tests.support.tables import plain
from tests.support.wire import Channel, Connection, raw_connect

_SHUTDOWN = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
_STOPS = [signal.SIGTERM, signal.SIGINT]


# --- starting -----------------------------------------------------------------------------------------------------


def test_ready_line(tmp_path: Path) -> None:
    """It is the only line on stdout, and comes when everything serves."""
    with running(tmp_path) as program:
        ports = " ".join(rf"{name}=127\.0\.0\.1:\d+" for name in ("amqp", "management", "prometheus"))
        line = rf"leveret {re.escape(VERSION)} ready {ports} data={re.escape(str(tmp_path / 'data'))}"
        assert re.fullmatch(line, program.ready_line)
        for address in program.addresses.values():
            if ":" in address:
                host, port = address.split(":")
                socket.create_connection((host, int(port)), 5).close()
        program.signal(signal.SIGTERM)
        assert program.wait() == (0, "")


def test_probes_need_no_login(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "management.path_prefix=/broker") as program:
        for name in ("live", "ready"):
            url = f"http://{program.addresses['management']}/broker/health/{name}"
            with urllib.request.urlopen(url, timeout=120) as answer:
                assert (answer.status, answer.read()) == (200, b"yes\n")
        program.signal(signal.SIGTERM)
        assert program.wait()[0] == 0


def test_version() -> None:
    shown = run("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"leveret {VERSION} ({compilation.describe()})\n", "")


@pytest.mark.parametrize("command", ["check-config --print", "config-reference"])
@pytest.mark.parametrize(
    ("streams", "status", "said"), [("| :", 0, ""), (">/dev/full", 1, "leveret: No space left on device\n")]
)
def test_output_that_nobody_takes(command: str, streams: str, status: int, said: str) -> None:
    shell = f"set -o pipefail; {shlex.quote(sys.executable)} -u -m leveret {command} {streams}"
    ended = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (status, said)


@pytest.mark.parametrize("option", ["--port", "--management-port", "--prometheus-port"])
def test_port_in_use(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--port": 0, "--management-port": 0, "--prometheus-port": 0, option: port}
        arguments = [word for name, number in ports.items() for word in (name, str(number))]
        refused = run("--host", "127.0.0.1", "--data-dir", str(tmp_path), *arguments)
    line = f"leveret: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --host or {option}\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", line)


def test_all_ports_in_use_are_named_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as amqp,
        socket.create_server(("127.0.0.1", 0)) as management,
        socket.create_server(("127.0.0.1", 0)) as prometheus,
    ):
        ports = [each.getsockname()[1] for each in (amqp, management, prometheus)]
        flags = ("--port", "--management-port", "--prometheus-port")
        arguments = [word for flag, port in zip(flags, ports, strict=True) for word in (flag, str(port))]
        refused = run("--host", "127.0.0.1", "--data-dir", str(tmp_path), *arguments)
    where = f"127.0.0.1:{ports[0]}, 127.0.0.1:{ports[1]} and 127.0.0.1:{ports[2]}"
    options = "--host, or another --port, --management-port and --prometheus-port"
    line = f"leveret: cannot listen on {where}: Address already in use; choose another {options}\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", line)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--prot", "1"], "--prot"),
        (["--port", "70000"], "--port"),
        (["--set", "heartbaet=3"], "heartbaet"),
        (["--set", "heartbeat=soon"], "heartbeat"),
        (["--config"], "--config"),
    ],
)
def test_bad_option(arguments: list[str], named: str) -> None:
    refused = run(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    _assert_one_line(refused.stderr, named)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("prot: 5672", "prot"),
        ("heartbeat: often", "heartbeat"),
        ("heartbeat: [1", "is not YAML"),
        ("- heartbeat", "mapping"),
        (None, "cannot be read"),
    ],
)
def test_bad_configuration_file(tmp_path: Path, content: str | None, named: str) -> None:
    file = tmp_path / "leveret.yaml"
    if content is not None:
        file.write_text(content)
    refused = run("--config", str(file))
    assert (refused.returncode, refused.stdout) == (1, "")
    _assert_one_line(refused.stderr, str(file), named)


def test_bad_environment() -> None:
    refused = run(environment={"LEVERET_HEARTBEAT": "often"})
    assert (refused.returncode, refused.stdout) == (1, "")
    _assert_one_line(refused.stderr, "LEVERET_HEARTBEAT")


@pytest.mark.parametrize("host", ["a" * 64, ".", "a..b"])
def test_what_is_no_host_name(tmp_path: Path, host: str) -> None:
    refused = run("--host", host, "--port", "0", "--data-dir", str(tmp_path))
    assert (refused.returncode, refused.stdout) == (1, "")
    _assert_one_line(refused.stderr, f"cannot listen on {host}:0: ", "choose another --host")


def test_unusable_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    refused = run("--port", "0", "--data-dir", str(file / "data"))
    assert (refused.returncode, refused.stdout) == (1, "")
    _assert_one_line(refused.stderr, str(file / "data"), "--data-dir")


def _assert_one_line(stderr: str, *named: str) -> None:
    assert stderr.startswith("leveret: ")
    assert stderr.count("\n") == 1
    assert all(each in stderr for each in named), stderr


# --- running ------------------------------------------------------------------------------------------------------


@contextmanager
def _low_file_limit() -> Iterator[int]:
    """Lower this process's soft limit, which those it starts inherit, to what it needs; gives the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 100, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Nobody may listen to what is printed, and the descriptors may be closed.
@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "> >(:)"])
def test_it_serves_whatever_becomes_of_its_output(tmp_path: Path, streams: str) -> None:
    # Its address is its own, so that nobody takes the port meanwhile.
    host = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    options = f"--host {host} --port {port} --management-port 0 --prometheus-port 0 --data-dir {tmp_path}"
    command = ["bash", "-c", f"exec {shlex.quote(sys.executable)} -m leveret {options} {streams}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(host, port), "the broker to listen")
            assert process.poll() is None
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def _answers(host: str, port: int) -> bool:
    try:
        with Connection(f"amqp://guest:guest@{host}:{port}"):
            return True
    except OSError:
        return False


def test_signals_before_it_serves(tmp_path: Path) -> None:
    """It reads definitions that do not come: SIGHUP does not end it, the others do at once and without a word."""
    definitions = tmp_path / "definitions.json"
    os.mkfifo(definitions)
    arguments = ["--data-dir", str(tmp_path / "data"), "--port", "0", "--import-definitions", str(definitions)]
    for number in (signal.SIGTERM, signal.SIGINT):
        command = [sys.executable, "-m", "leveret", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                with definitions.open("w"):
                    # It has opened its end, so that it has imported and prepared everything.
                    process.send_signal(signal.SIGHUP)
                    process.send_signal(number)
                    assert process.communicate(timeout=120) == (b"", b"")
                assert process.returncode == -number
            finally:
                process.kill()


def test_as_many_open_files_as_the_system_allows(tmp_path: Path) -> None:
    # Limits are inherited.
    with _low_file_limit() as hard, running(tmp_path, environment={}) as program:
        assert resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_options_from_file_environment_and_command_line(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text("heartbeat: 11\nchannel_max: 12\nframe_max: 8192\n")
    with (
        running(
            tmp_path,
            *("--config", str(file), "--set", "heartbeat=31"),
            environment={"LEVERET_HEARTBEAT": "21", "LEVERET_CHANNEL_MAX": "22"},
        ) as program,
        Connection(program.url) as connection,
    ):
        tune = connection.tune
        assert (tune.heartbeat, tune.channel_max, tune.frame_max) == (31, 22, 8192)


def test_the_product_may_be_its_own(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "compat.advertise=none") as program, Connection(program.url) as connection:
        shown = plain(connection.start.server_properties)
        assert (shown["product"], shown["version"]) == ("Leveret", VERSION)


# --- stopping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", _STOPS)
def test_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as program:
        idle, busy = Connection(program.url), Connection(program.url)
        channel = busy.channel()
        channel.queue_declare("q")
        channel.consume("q")
        opening = raw_connect(program.url)
        program.signal(number)
        for connection in (idle, busy):
            connection.wire.expect_close(320, _SHUTDOWN)
            connection.wire.expect_eof()
            connection.abort()
        opening.abort()
        assert program.wait() == (0, "")
        assert f"received {number.name}, stopping" in program.log()


def test_a_client_that_answers_is_not_waited_for(tmp_path: Path) -> None:
    """Also after a time when nobody was connected."""
    with running(tmp_path, "--set", "shutdown_timeout=60000") as program:
        Connection(program.url).close()
        connection = Connection(program.url)
        started = time.monotonic()
        program.signal(signal.SIGTERM)
        connection.wire.expect_close(320, _SHUTDOWN)
        connection.wire.expect_eof()
        connection.abort()
        assert program.wait() == (0, "")
        assert time.monotonic() - started < 55
        assert "did not end" not in program.log()


def test_a_publisher_that_is_sending_learns_why(tmp_path: Path) -> None:
    """A connection that is closed while its client sends is reset, and the client may not see what came before."""
    with running(tmp_path) as program:
        publisher = Connection(program.url)
        channel = publisher.channel()
        channel.queue_declare("q")
        for _ in range(50):
            channel.publish("", "q", bytes(100_000))
        program.signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in program.log(), "the signal")
        for _ in range(50):
            channel.publish("", "q", bytes(100_000))
        publisher.wire.expect_close(320, _SHUTDOWN)
        publisher.abort()
        assert program.wait() == (0, "")


def test_an_http_client_that_does_not_read_has_the_same_deadline(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "shutdown_timeout=500") as program:
        host, port = program.addresses["management"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=120) as idle:
            idle.sendall(b"POST /api/definitions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{")
            started = time.monotonic()
            program.signal(signal.SIGTERM)
            assert program.wait() == (0, "")
        assert time.monotonic() - started < 55


def test_stop_without_connections(tmp_path: Path) -> None:
    with running(tmp_path, "--log-level", "warning") as program:
        program.signal(signal.SIGTERM)
        assert program.wait() == (0, "")
        assert program.log() == ""


def _client_that_does_not_read(program: Program) -> Channel:
    """A consumer with a message on its way to it that no sockets hold; it keeps a clean stop waiting."""
    stuck = Connection(program.url).channel()
    stuck.queue_declare("stuck")
    with Connection(program.url) as other:
        channel = other.channel()
        channel.confirm_select()
        channel.publish("", "stuck", bytes(48 << 20))
        assert channel.wait_for_confirms(1) == [True]
    stuck.consume("stuck")
    # Once its first frame is here, the rest has been written as well.
    stuck.connection.wire.expect(stuck.number, commands.Basic.Deliver)
    return stuck


def test_a_stop_has_a_deadline(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "shutdown_timeout=300") as program:
        stuck = _client_that_does_not_read(program)
        program.signal(signal.SIGTERM)
        assert program.wait() == (0, "")
        assert "1 connections did not close within 0.3 s" in program.log()
        stuck.connection.abort()


@pytest.mark.parametrize("number", _STOPS)
def test_second_signal_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--set", "shutdown_timeout=60000") as program:
        stuck = _client_that_does_not_read(program)
        program.signal(number)
        wait_until(lambda: "stopping" in program.log(), "the first signal")
        started = time.monotonic()

        def has_stopped() -> bool:
            # Within a second of the first one, a signal changes nothing.
            program.signal(number)
            return program.process.poll() is not None

        wait_until(has_stopped, "the end")
        assert program.wait() == (-number, "")
        assert time.monotonic() - started < 55
        stuck.connection.abort()
