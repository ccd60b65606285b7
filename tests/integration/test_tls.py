"""TLS: encrypted AMQP and HTTP, client certificates, and certificates replaced while the broker runs."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pika
import pytest
from cryptography import x509

from tests.integration.certificates import Authority, Issued
from tests.integration.program import Program, run, running
from tests.integration.waiting import wait_until

HOST = "127.0.0.1"
USER = "client"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Authority(folder)


def options(authority: Authority, issued: Issued, **further: object) -> list[str]:
    """The command line of a broker that speaks TLS."""
    given: dict[str, object] = {
        "ssl_options.certfile": issued.certificate,
        "ssl_options.keyfile": issued.key,
        "ssl_options.cacertfile": authority.file,
    }
    given |= {name.replace("__", "."): value for name, value in further.items()}
    arguments = ["--amqps-port", "0", "--management-tls-port", "0"]
    for name, value in given.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


def client_context(authority: Authority, issued: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    return context


def connect(program: Program, context: ssl.SSLContext, **parameters: Any) -> pika.BlockingConnection:
    _, port = program.addresses["amqps"].rsplit(":", 1)
    tls = pika.SSLOptions(context, HOST)
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, int(port), ssl_options=tls, **parameters))


def serial_number(program: Program, authority: Authority) -> str:
    """That of the certificate which the broker shows now."""
    _, port = program.addresses["amqps"].rsplit(":", 1)
    with (
        socket.create_connection((HOST, int(port)), timeout=120) as plain,
        client_context(authority).wrap_socket(plain, server_hostname=HOST) as encrypted,
    ):
        shown = encrypted.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def test_pika(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue(HOST)
    with running(tmp_path, *options(authority, issued)) as program:
        with connect(program, client_context(authority)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            body = bytes(range(256)) * 4000
            channel.confirm_delivery()
            channel.basic_publish("", "q", body)
            assert channel.basic_get("q", auto_ack=True)[2] == body
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(program, ssl.create_default_context())


def test_http(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, *options(authority, authority.issue(HOST))) as program:
        _, port = program.addresses["management-tls"].rsplit(":", 1)
        request = urllib.request.Request(f"https://{HOST}:{port}/api/whoami")
        request.add_header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request, context=client_context(authority), timeout=120) as answer:
            assert b'"guest"' in answer.read()


#: Why a certificate for nobody is refused, by what its user is taken from.
UNKNOWN = {
    "common_name": ["user 'nobody' - invalid credentials"],
    "distinguished_name": ["user 'CN=nobody,"],
    "subject_alternative_name": ["no name found"],
}


@pytest.mark.parametrize("source", ["common_name", "distinguished_name", "subject_alternative_name"])
def test_a_certificate_logs_its_user_in(tmp_path: Path, authority: Authority, source: str) -> None:
    issued = authority.issue("client.example.org", common_name=USER, organization="Hare, Sons")
    names = {
        "common_name": USER,
        "distinguished_name": subject_of(issued),
        "subject_alternative_name": "client.example.org",
    }
    config = tmp_path / "leveret.yaml"
    config.write_text(
        "auth_mechanisms: [PLAIN, EXTERNAL]\n"
        "ssl_options: {verify: verify_peer}\n"
        f"ssl_cert_login_from: {source}\n"
        "definitions:\n"
        f"  users: [{{name: {json.dumps(names[source])}, password: unused, tags: []}}]\n"
        f"  permissions: [{{user: {json.dumps(names[source])}, vhost: /, configure: '.*', write: '.*', read: '.*'}}]\n"
    )
    arguments = ["--config", str(config), *options(authority, authority.issue(HOST))]
    external = pika.credentials.ExternalCredentials()
    with running(tmp_path, *arguments) as program:
        with connect(program, client_context(authority, issued), credentials=external) as connection:
            channel = connection.channel()
            channel.queue_declare("q", exclusive=True)
            channel.basic_publish("", "q", b"", pika.BasicProperties(user_id=names[source]))
            assert channel.basic_get("q")[1].user_id == names[source]
        unknown = authority.issue(common_name="nobody")
        for each in (None, unknown):
            with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
                connect(program, client_context(authority, each), credentials=external)
    for why in ("connection peer presented no TLS (x.509) certificate", *UNKNOWN[source]):
        assert f"EXTERNAL login refused: {why}" in program.log()


def subject_of(issued: Issued) -> str:
    """The subject of a certificate as another implementation of RFC 4514 writes it."""
    return x509.load_pem_x509_certificate(issued.certificate.read_bytes()).subject.rfc4514_string()


def test_a_new_certificate_is_taken_up_and_nobody_notices(tmp_path: Path, authority: Authority) -> None:
    used, following = authority.issue(HOST), authority.issue(HOST)
    with running(tmp_path, *options(authority, used)) as program:
        before = serial_number(program, authority)
        with connect(program, client_context(authority)) as connection:
            shutil.copy(following.certificate, used.certificate)
            shutil.copy(following.key, used.key)
            program.signal(signal.SIGHUP)
            wait_until(lambda: serial_number(program, authority) != before, "the new certificate is shown")
            connection.channel().queue_declare("q", exclusive=True)
            after = serial_number(program, authority)
            used.key.write_text("no key")
            program.signal(signal.SIGHUP)
            wait_until(lambda: "is not reloaded: ssl_options" in program.log(), "the log says what is wrong")
            assert serial_number(program, authority) == after
            connection.channel().queue_declare("q", exclusive=True)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"certfile": "none"}, "ssl_options.certfile"),
        ({"certfile": "missing.pem"}, "missing.pem"),
        ({"keyfile": "empty.pem"}, "empty.pem"),
        ({"cacertfile": "empty.pem"}, "empty.pem"),
        ({"cacertfile": "none", "verify": "verify_peer"}, "cacertfile"),
        ({"fail_if_no_peer_cert": "true"}, "verify_peer"),
        ({"ciphers": "no-such-cipher"}, "no-such-cipher"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, authority: Authority, changes: dict[str, str], named: str
) -> None:
    (tmp_path / "empty.pem").touch()
    given = {
        f"ssl_options__{name}": str(tmp_path / value) if value.endswith(".pem") else value
        for name, value in changes.items()
    }
    arguments = options(authority, authority.issue(HOST), **given)
    refused = run("--port", "0", "--data-dir", str(tmp_path / "data"), *arguments)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    assert named in refused.stderr


def test_plain_bytes_on_the_tls_port_do_no_harm(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, *options(authority, authority.issue(HOST), ssl_handshake_timeout="300")) as program:
        _, port = program.addresses["amqps"].rsplit(":", 1)
        for greeting in (b"AMQP\x00\x00\x09\x01", b""):
            with socket.create_connection((HOST, int(port)), timeout=120) as plain:
                plain.sendall(greeting)
                while plain.recv(4096):
                    pass
        connect(program, client_context(authority)).close()
        assert "Traceback" not in program.log()
