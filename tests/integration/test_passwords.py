"""Rules for passwords, and a first user whose password nobody chose."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from leveret.broker.auth.passwords import hash_password
from tests.integration.program import run, running
from tests.support.leveretctl import LeveretctlProgram
from tests.support.management import Management

LENGTH = "minimum required password length is 12"
LISTED = "provided password is in the list of refused passwords"


@pytest.fixture(scope="module")
def http_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a broker with rules."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "refused.txt").write_text("correct horse battery\n")
    options = {
        "default_pass": "long enough for it",
        "credential_validator.min_length": "12",
        "credential_validator.refused_passwords": str(folder / "refused.txt"),
    }
    arguments = [f"--set={name}={value}" for name, value in options.items()]
    with running(folder, *arguments) as program:
        yield program.http_url.replace("guest:guest", "guest:long%20enough%20for%20it")


@pytest.mark.parametrize(("password", "detail"), [("short", LENGTH), ("", LENGTH), ("Correct Horse Battery", LISTED)])
def test_the_api_refuses_as_rabbitmq_does(http_url: str, password: str, detail: str) -> None:
    api = Management(http_url)
    for method, path, body in (
        ("PUT", ("users", "ann"), {"password": password, "tags": ""}),
        ("POST", ("definitions",), {"users": [{"name": "ann", "password": password, "tags": ""}]}),
    ):
        with pytest.raises(HTTPError) as refused:
            api.request(method, *path, body=body)
        answer = json.load(refused.value)
        assert (refused.value.code, answer["error"]) == (400, "bad_request")
        assert answer["reason"] == "credential_validation_failed"
        assert answer.get("detail") in (detail, None)
    assert "ann" not in {user["name"] for user in api.request("GET", "users")}


def test_hashes_and_users_without_password_are_not_checked(http_url: str) -> None:
    api = Management(http_url)
    api.request("PUT", "users", "hashed", body={"password_hash": hash_password("p"), "tags": ""})
    api.request("PUT", "users", "none", body={"tags": ""})
    assert {"hashed", "none"} <= {user["name"] for user in api.request("GET", "users")}


def test_commands_say_which_rule(http_url: str) -> None:
    ctl = LeveretctlProgram(http_url)
    assert ctl("add_user", "bob", "a good long one").status == 0
    for command in (("add_user", "carl", "short"), ("change_password", "bob", "short")):
        done = ctl(*command)
        assert (done.status, done.err) == (69, f"Error:\n{LENGTH}\n")
    assert ctl("authenticate_user", "bob", "a good long one").status == 0


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"min_length": "6"}, "default_pass: minimum required password length is 6; give another, or generate"),
        ({"regexp": "("}, "credential_validator.regexp: '(' is not a regular expression"),
        ({"refused_passwords": "/nowhere"}, "credential_validator.refused_passwords: /nowhere: No such file"),
    ],
)
def test_a_start_says_what_is_wrong(tmp_path: Path, rules: dict[str, str], text: str) -> None:
    arguments = [f"--set=credential_validator.{name}={value}" for name, value in rules.items()]
    directory = ("--data-dir", str(tmp_path / "data"))
    for command in ((), ("check-config",)):
        done = run(*command, *directory, *arguments, "--port", "0")
        assert (done.returncode, text in done.stderr) == (1, True), done.stderr
    with running(tmp_path) as program:
        assert Management(program.http_url).request("GET", "whoami")["name"] == "guest", "the next start is a first one"


@pytest.mark.parametrize(
    ("backend", "counts"),
    [("accept_everything", False), ("min_password_length", True), ("password_regexp", False)],
)
def test_the_backend_says_which_rule_counts(tmp_path: Path, backend: str, counts: bool) -> None:
    arguments = ("validation_backend=rabbit_credential_validator_" + backend, "min_length=30")
    done = run(
        "check-config",
        *("--data-dir", str(tmp_path / "data")),
        *(f"--set=credential_validator.{each}" for each in arguments),
    )
    assert ("password length is 30" in done.stderr) == counts


def test_a_generated_password_is_logged_once(tmp_path: Path) -> None:
    arguments = ("--set=default_pass=generate", "--log-level=error", "--set=credential_validator.min_length=20")
    assert "password" not in run("check-config", "--data-dir", str(tmp_path / "data"), *arguments).stderr
    with running(tmp_path, *arguments) as program:
        (password,) = re.findall(r"user 'guest' has the password (\S{32}) which", program.log())
        url = program.http_url.replace("guest:guest", f"guest:{password}")
        shown = json.dumps([Management(url).request("GET", *path) for path in (("users",), ("config", "effective"))])
        assert password not in shown
        program.signal(signal.SIGTERM)
        program.wait()
        assert program.log().count(password) == 1
    for path in (tmp_path / "data").rglob("*"):
        assert path.is_dir() or password.encode() not in path.read_bytes()
    with running(tmp_path, *arguments) as program:
        url = program.http_url.replace("guest:guest", f"guest:{password}")
        assert Management(url).request("GET", "whoami")["name"] == "guest"
        assert "password" not in program.log()
