"""Failed TLS handshakes: the log says why, and the client gets a TLS alert."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tests.integration.program import Program, running
from tests.integration.tls_failures import FAILURES, HOST, Certificates, Failure, fail, make_certificates
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Program]:
    """A broker that wants certificates of its clients."""
    issued = certificates.authority.issue(HOST)
    options = {
        "ssl_options.certfile": issued.certificate,
        "ssl_options.keyfile": issued.key,
        "ssl_options.cacertfile": certificates.authority.file,
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "true",
        "ssl_handshake_timeout": "5000",
    }
    arguments = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    ports = ("--amqps-port", "0", "--management-tls-port", "0")
    with running(tmp_path_factory.mktemp("leveret"), *ports, *arguments) as started:
        yield started


@pytest.mark.parametrize("failure", FAILURES, ids=[each.title for each in FAILURES])
def test_the_log_says_why(program: Program, certificates: Certificates, failure: Failure) -> None:
    address = program.addresses[failure.port]
    own, seen = fail(failure, certificates, address)
    start = f"closing AMQP connection {own} -> {address}: "
    wait_until(lambda: start in program.log(), "the log tells of it")
    assert [line.partition(start)[2] for line in program.log().splitlines() if start in line] == [failure.log]
    assert failure.seen.casefold() in seen.casefold().replace("_", " ")
    assert "Traceback" not in program.log()


def test_https_says_it_too(program: Program, certificates: Certificates) -> None:
    (failure,) = [each for each in FAILURES if each.title == "the client has no certificate"]
    own, seen = fail(failure, certificates, program.addresses["management-tls"])
    line = f"closing HTTPS connection from {own}: {failure.log}"
    wait_until(lambda: line in program.log(), "the log tells of it")
    assert "certificate required" in seen.casefold().replace("_", " ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_that_are_spoken(program: Program, certificates: Certificates, version: ssl.TLSVersion) -> None:
    def context(found: Certificates) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(found.authority.file))
        made.load_cert_chain(found.client.certificate, found.client.key)
        made.minimum_version = made.maximum_version = version
        return made

    _, seen = fail(
        Failure("", "amqps", context, "", "", greeting=b"no AMQP at all"), certificates, program.addresses["amqps"]
    )
    assert "AMQP" in seen


def test_a_client_that_goes_away_is_no_failure(program: Program, certificates: Certificates) -> None:
    failure = Failure("", "amqps", None, "", "", greeting=b"")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.integration.tls_failures._read_all", lambda sock: "")
        own, _ = fail(failure, certificates, program.addresses["amqps"])
    wait_until(lambda: f"closing AMQP connection {own}" in program.log(), "the log tells of it")
    (line,) = [line for line in program.log().splitlines() if own in line]
    assert line.endswith("TLS: the client closed the connection")
