"""The extras `oauth2`, `ldap`, `sql` and `iceberg` of an installed wheel, in somebody else's project."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.distributions import clean, dependencies, install
from tests.support.slapd import BASE, Slapd
from tests.support.tokens import RESOURCE_SERVER, Signer

_LOG_IN = """
import json, sys
import pika
from leveret import LeveretThread

given = json.load(sys.stdin)
with LeveretThread(options=given["options"]) as broker:
    for name, password in given["logins"]:
        parameters = pika.URLParameters(broker.url)
        parameters.credentials = pika.PlainCredentials(name, password)
        try:
            with pika.BlockingConnection(parameters) as connection:
                connection.channel().queue_declare("q")
            print("in")
        except pika.exceptions.ProbableAuthenticationError:
            print("refused")
"""

_ASK = """
import base64, sys, urllib.error, urllib.parse, urllib.request
from leveret import LeveretThread

with LeveretThread(options={"archive.url": sys.argv[1], "archive.iceberg": "archive"}) as broker:
    place = urllib.parse.urlsplit(broker.http_url)
    headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    for path, body in (("/iceberg/v1/namespaces", None), ("/api/sql", b'{"statement": "SELECT 1"}')):
        request = urllib.request.Request(f"http://{place.hostname}:{place.port}{path}", body, headers)
        try:
            urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            print(error.code, error.read().decode())
"""


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment with the wheel, its two extras and pika."""
    names = dict.fromkeys(["pika", *dependencies("leveret", {"oauth2", "ldap"})])
    return install(wheel, tmp_path_factory.mktemp("extras"), names)


@pytest.fixture
def slapd(tmp_path: Path) -> Iterator[Slapd]:
    with Slapd(tmp_path / "slapd") as server:
        yield server


def logins(programs: Path, place: Path, options: dict[str, object], *tried: tuple[str, str]) -> list[str]:
    """What becomes of logins at a broker that a program of another project has started."""
    done = subprocess.run(
        [programs / "python", "-c", _LOG_IN],
        cwd=place,
        env=clean(),
        input=json.dumps({"options": options, "logins": tried}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_tokens_log_in(programs: Path, tmp_path: Path) -> None:
    signer = Signer()
    key = tmp_path / "key.pem"
    key.write_bytes(signer.pem())
    options: dict[str, object] = {
        "auth_backends": ["oauth2", "internal"],
        "auth_oauth2.resource_server_id": RESOURCE_SERVER,
        "auth_oauth2.signing_keys": {signer.kid: str(key)},
    }
    token = signer.token(
        *(f"{RESOURCE_SERVER}.{what}:*/*" for what in ("configure", "read", "write")), exp=time.time() + 600
    )
    forged = Signer(kid=signer.kid).token("rabbitmq.read:*/*", exp=time.time() + 600)
    tried = ("", token), ("", forged), ("guest", "guest")
    assert logins(programs, tmp_path, options, *tried) == ["in", "refused", "in"]


@pytest.mark.ldap
def test_users_of_a_directory_log_in(programs: Path, tmp_path: Path, slapd: Slapd) -> None:
    options: dict[str, object] = {
        "auth_backends": ["internal", "ldap"],
        "auth_ldap.servers": [slapd.host],
        "auth_ldap.port": slapd.port,
        "auth_ldap.user_dn_pattern": f"uid=${{username}},ou=people,{BASE}",
    }
    tried = ("ann", "ann's"), ("ann", "wrong"), ("guest", "guest")
    assert logins(programs, tmp_path, options, *tried) == ["in", "refused", "in"]


@pytest.mark.parametrize(
    ("backend", "options", "package"),
    [
        (
            "oauth2",
            ("--set=auth_oauth2.resource_server_id=rabbitmq", "--set=auth_oauth2.issuer=https://localhost"),
            "jwt",
        ),
        ("ldap", ("--set=auth_ldap.servers=localhost",), "ldap3"),
    ],
)
def test_without_the_extra_the_error_names_it(
    installed: Path, tmp_path: Path, backend: str, options: tuple[str, ...], package: str
) -> None:
    done = subprocess.run(
        [
            installed / "leveret",
            "--data-dir",
            str(tmp_path / "data"),
            f"--set=auth_backends={backend},internal",
            *options,
        ],
        cwd=tmp_path,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    said = f"auth_backends: {backend} needs the Python package {package}: pip install 'leveret[{backend}]'"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_tables_and_sql_name_it(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "python", "-c", _ASK, str(tmp_path / "archive")],
        cwd=tmp_path,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables, sql = done.stdout.splitlines()
    for answer, extra in ((tables, "iceberg"), (sql, "sql")):
        assert answer.startswith("503 ")
        assert f"pip install 'leveret[{extra}]'" in answer
