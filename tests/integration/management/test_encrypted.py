"""Connections and listeners with TLS, as the HTTP API shows them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
import trustme

from tests.conformance.http_api import HttpApi, path
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management


@dataclass(frozen=True)
class Encrypted:
    """A broker with TLS, and what clients need to connect to it."""

    management: Management
    port: int
    context: ssl.SSLContext

    def get(self, *path: str) -> Any:
        """A document."""
        return self.management.request("GET", *path)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    """A broker whose certificate is valid for 40 days."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=40))
    files = _write(directory, authority, certificate)
    context = ssl.create_default_context(cafile=str(files["cacertfile"]))
    settings: dict[str, object] = {"amqps_port": 0, **{f"ssl_options.{name}": path for name, path in files.items()}}
    with LeveretProcess(directory, settings=settings) as process:
        management = Management(process.http_url)
        listeners = management.request("GET", "overview")["listeners"]
        port = next(each["port"] for each in listeners if each["protocol"] == "amqp/ssl")
        yield Encrypted(management, port, context)


def _write(directory: Path, authority: trustme.CA, certificate: trustme.LeafCert) -> dict[str, Path]:
    files = {name: directory / f"{name}.pem" for name in ("cacertfile", "certfile", "keyfile")}
    authority.cert_pem.write_to_path(str(files["cacertfile"]))
    certificate.private_key_pem.write_to_path(str(files["keyfile"]))
    certificate.cert_chain_pems[0].write_to_path(str(files["certfile"]))
    return files


def test_a_connection(encrypted: Encrypted) -> None:
    options = pika.SSLOptions(encrypted.context, "127.0.0.1")
    parameters = pika.ConnectionParameters("127.0.0.1", encrypted.port, ssl_options=options)
    connection = pika.BlockingConnection(parameters)
    try:
        [document] = encrypted.get("connections")
    finally:
        connection.close()
    assert (document["ssl"], document["ssl_protocol"], document["port"]) == (True, "tlsv1.3", encrypted.port)
    assert isinstance(document["ssl_cipher"], str)


def test_the_listener_is_known_by_its_protocol(encrypted: Encrypted) -> None:
    answer = encrypted.get("health", "checks", "protocol-listener", "amqps")
    assert answer == {"status": "ok", "protocol": "amqp/ssl"}
    assert encrypted.get("health", "checks", "port-listener", str(encrypted.port))["status"] == "ok"


@pytest.mark.parametrize(("within", "unit"), [("30", "days"), ("5", "weeks"), ("1", "months")])
def test_a_certificate_that_lasts(encrypted: Encrypted, within: str, unit: str) -> None:
    assert encrypted.get("health", "checks", "certificate-expiration", within, unit) == {"status": "ok"}


@pytest.mark.parametrize(("within", "unit"), [("41", "days"), ("6", "weeks"), ("2", "months"), ("1", "years")])
def test_a_certificate_that_does_not(encrypted: Encrypted, within: str, unit: str) -> None:
    answer = HttpApi(encrypted.management).ask("GET", path("health", "checks", "certificate-expiration", within, unit))
    assert (answer.status, answer.document["reason"]) == (503, "Certificates expiring")
    [expired] = answer.document["expired"]
    assert (expired["protocol"], expired["port"]) == ("amqp/ssl", encrypted.port)
    assert len(expired["certfile_expires_on"]) == 1
