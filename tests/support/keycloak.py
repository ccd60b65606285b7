"""A Keycloak on loopback, from Maven Central, with one realm for the tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.support.tokens import RESOURCE_SERVER

VERSION: Final = "26.0.7"
_ARTIFACT: Final = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
_START_SECONDS: Final = 600
REALM: Final = "test"
CLIENT: Final = "leveret-pages"
USER, PASSWORD = "alice", "secret"
_SCOPES: Final = ("tag:administrator", "configure:*/*", "write:*/*", "read:*/*", "write:*/*/*", "read:*/*/*")


def install(directory: Path) -> Path:
    """Get Keycloak by Maven; return its folder."""
    command = [
        "mvn",
        "-q",
        "-B",
        "-ntp",
        "dependency:copy",
        f"-Dartifact={_ARTIFACT}",
        f"-DoutputDirectory={directory}",
    ]
    subprocess.run(command, check=True, timeout=900)
    with zipfile.ZipFile(directory / f"keycloak-quarkus-dist-{VERSION}.zip") as archive:
        archive.extractall(directory)
    return directory / f"keycloak-{VERSION}"


class Keycloak:
    """A running Keycloak; a context manager that stops it.

    Args:
        folder: Where it is installed.
        lifetime: Seconds that an access token is valid.
    """

    def __init__(self, folder: Path, lifetime: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.url}/realms/{REALM}"
        self._lifetime = lifetime
        self._log = folder / "keycloak.log"
        environment = {
            **os.environ,
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin",
            "JAVA_OPTS_APPEND": "-Xmx400m",
        }
        command = ["sh", "bin/kc.sh", "start-dev", "--http-host", "127.0.0.1", "--http-port", str(port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Keycloak:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.request("GET", "/realms/master/.well-known/openid-configuration")
                break
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.5)
        self._make_realm()
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        form: dict[str, str] | None = None,
        token: str = "",
    ) -> Any:
        """Send a request; return the JSON of the answer."""
        data = urlencode(form).encode() if form else None if body is None else json.dumps(body).encode()
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            octets = answer.read()
        return json.loads(octets) if octets else None

    def token(self) -> str:
        """Return an access token of the user, as a program gets it."""
        form = {"grant_type": "password", "client_id": CLIENT, "username": USER, "password": PASSWORD}
        path = f"/realms/{REALM}/protocol/openid-connect/token"
        token: str = self.request("POST", path, form=form)["access_token"]
        return token

    def _admin(self, method: str, path: str, body: Any = None) -> Any:
        form = {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": "admin"}
        token = self.request("POST", "/realms/master/protocol/openid-connect/token", form=form)["access_token"]
        return self.request(method, f"/admin/realms{path}", body, token=token)

    def rotate_keys(self) -> None:
        """Let the realm sign with a new key."""
        provider = {
            "name": "rotated",
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "config": {"priority": ["1000"], "enabled": ["true"], "active": ["true"]},
        }
        self._admin("POST", f"/{REALM}/components", provider)

    def end_sessions(self) -> None:
        """End all sessions of the user, as an administrator does."""
        [user] = self._admin("GET", f"/{REALM}/users?username={USER}")
        self._admin("POST", f"/{REALM}/users/{user['id']}/logout")

    def _make_realm(self) -> None:
        self._admin("POST", "", {"realm": REALM, "enabled": True, "accessTokenLifespan": self._lifetime})
        scopes = [f"{RESOURCE_SERVER}.{each}" for each in _SCOPES]
        for scope in scopes:
            shown = {"include.in.token.scope": "true"}
            self._admin("POST", f"/{REALM}/client-scopes", _scope(scope, shown))
        audience = {
            "name": "audience",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.custom.audience": RESOURCE_SERVER, "access.token.claim": "true"},
        }
        client = {
            "clientId": CLIENT,
            "publicClient": True,
            "standardFlowEnabled": True,
            "directAccessGrantsEnabled": True,
            "redirectUris": ["*"],
            "attributes": {"pkce.code.challenge.method": "S256", "post.logout.redirect.uris": "+"},
            "protocolMappers": [audience],
        }
        self._admin("POST", f"/{REALM}/clients", client)
        [made] = self._admin("GET", f"/{REALM}/clients?clientId={CLIENT}")
        for scope in self._admin("GET", f"/{REALM}/client-scopes"):
            if scope["name"] in scopes:
                self._admin("PUT", f"/{REALM}/clients/{made['id']}/default-client-scopes/{scope['id']}")
        credentials = [{"type": "password", "value": PASSWORD, "temporary": False}]
        person = {"email": "alice@example.com", "firstName": "Alice", "lastName": "Example"}
        user = {"username": USER, "enabled": True, "credentials": credentials, **person}
        self._admin("POST", f"/{REALM}/users", user)


def _scope(name: str, attributes: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "protocol": "openid-connect", "attributes": attributes}
