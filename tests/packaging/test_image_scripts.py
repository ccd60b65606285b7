"""The programs of the image, without an image: its entry point, its health check, its leveretctl."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from docker.healthcheck import UnhealthyError, check
from docker.leveretctl import url_of
from leveret.broker.config.load import load
from tests.support.cluster import send_signal
from tests.support.leveret_process import LeveretProcess

ROOT = Path(__file__).parents[2]


def enter(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a clean environment."""
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    return subprocess.run(
        ["sh", str(ROOT / "docker/entrypoint.sh"), *command],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def entered(**environment: str) -> Mapping[str, str]:
    """The variables that a program finds after the entry point, as far as they concern the broker."""
    done = enter("env", "-0", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    pairs = [line.partition("=") for line in done.stdout.rstrip("\0").split("\0")]
    return {name: value for name, _, value in pairs if name.startswith(("LEVERET_", "RABBITMQ_DEFAULT"))}


# --- the entry point ------------------------------------------------------------------------------------------------


def test_variables_of_rabbitmqs_image() -> None:
    found = entered(RABBITMQ_DEFAULT_USER="clerk", RABBITMQ_DEFAULT_PASS="a\\nb 'c\" $d", RABBITMQ_DEFAULT_VHOST="-n")
    assert found["LEVERET_DEFAULT_USER"] == "clerk"
    assert found["LEVERET_DEFAULT_PASS"] == "a\\nb 'c\" $d"
    assert found["LEVERET_DEFAULT_VHOST"] == "-n"


def test_ours_come_first() -> None:
    found = entered(RABBITMQ_DEFAULT_USER="theirs", LEVERET_DEFAULT_USER="ours")
    assert found["LEVERET_DEFAULT_USER"] == "ours"


@pytest.mark.parametrize("variable", ["RABBITMQ_DEFAULT_PASS", "LEVERET_DEFAULT_PASS", "LEVERET_SSL_OPTIONS_PASSWORD"])
def test_secrets_in_files(tmp_path: Path, variable: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(" p@ss word\n")
    found = entered(**{f"{variable}_FILE": str(secret)})
    assert found == {variable.replace("RABBITMQ", "LEVERET"): " p@ss word"}


def test_secrets_that_cannot_be_had(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for environment, text in (
        ({"RABBITMQ_DEFAULT_PASS_FILE": "/no/such"}, "RABBITMQ_DEFAULT_PASS_FILE names /no/such, which cannot be read"),
        ({"LEVERET_DEFAULT_PASS_FILE": str(empty)}, f"LEVERET_DEFAULT_PASS_FILE names {empty}, which is empty"),
        (
            {"LEVERET_DEFAULT_PASS_FILE": str(empty), "LEVERET_DEFAULT_PASS": "x"},
            "LEVERET_DEFAULT_PASS and LEVERET_DEFAULT_PASS_FILE are both set; set one",
        ),
    ):
        done = enter("env", **environment)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"leveret: {text}\n")


def test_nothing_given() -> None:
    assert entered() == {}


def test_flags_alone_are_the_brokers() -> None:
    done = enter("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("leveret ")


def test_files_are_for_owner_and_group() -> None:
    assert enter("sh", "-c", "umask").stdout.strip() == "0027"


# --- the health check -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"proxy_protocol": "true"}], ids=["plain", "behind a proxy"])
def test_healthy(leveret_process: Callable[..., LeveretProcess], settings: Mapping[str, str]) -> None:
    process = leveret_process(settings=settings)
    port = process.url.rpartition(":")[2]
    check(load(None, {"LEVERET_PORT": port, **{f"LEVERET_{name.upper()}": text for name, text in settings.items()}}))


def test_healthy_without_plain_amqp(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    port = process.http_url.rpartition(":")[2]
    check(load(None, {"LEVERET_MANAGEMENT_PORT": port, "LEVERET_LISTENERS_TCP": "none"}))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnhealthyError, match=f"127.0.0.1 port {port} does not answer: .*refused"):
        check(load(None, {"LEVERET_PORT": str(port)}))


def test_answers_something_else(leveret_process: Callable[..., LeveretProcess]) -> None:
    port = leveret_process().http_url.rpartition(":")[2]
    with pytest.raises(UnhealthyError, match=f"127.0.0.1 port {port} answers b'HTT' instead of"):
        check(load(None, {"LEVERET_PORT": port}))


def test_hangs(leveret_process: Callable[..., LeveretProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docker.healthcheck._SECONDS", 0.2)
    process = leveret_process()
    port = process.url.rpartition(":")[2]
    send_signal(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(UnhealthyError, match="timed out"):
            check(load(None, {"LEVERET_PORT": port}))
    finally:
        os.kill(process.pid, signal.SIGCONT)


# --- leveretctl -----------------------------------------------------------------------------------------------------


def test_url_of_the_default_user() -> None:
    variables = {"LEVERET_DEFAULT_USER": "a/b", "LEVERET_DEFAULT_PASS": "p@:", "LEVERET_HOST": "::"}
    assert url_of(load(None, variables)) == "http://a%2Fb:p%40%3A@[::1]:15672"
    assert url_of(load(None, {})) == "http://guest:guest@127.0.0.1:15672"
