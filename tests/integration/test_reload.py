"""SIGHUP: what is taken up from the configuration while the broker runs, and what is refused."""

from __future__ import annotations

import json
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.integration.certificates import Authority
from tests.integration.program import Program, running
from tests.integration.tls_failures import Failure, fail, make_certificates
from tests.integration.waiting import wait_until
from tests.support.management import Management

HOST = "127.0.0.1"
KEYS = ["time", "level", "domain", "msg"]


class Reloading:
    """A broker whose configuration file is changed."""

    def __init__(self, program: Program, file: Path) -> None:
        self.program = program
        self._file = file
        self._reloads = 0

    def reload(self, content: str, said: str = "configuration reloaded") -> str:
        """Change the file, and have it read; return what the log says from then on, up to a text."""
        self._file.write_text(content)
        before = len(self.program.log())
        self.program.signal(signal.SIGHUP)
        wait_until(lambda: said in self.program.log()[before:], said)
        return self.program.log()[before:]

    def node(self) -> dict[str, Any]:
        """The node as the API shows it."""
        (node,) = Management(self.program.http_url).request("GET", "nodes")
        return dict(node)


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    file = tmp_path / "leveret.yaml"
    file.write_text("")
    with running(tmp_path, "--config", str(file)) as program:
        yield Reloading(program, file)


def test_log_level(reloading: Reloading) -> None:
    url = pika.URLParameters(reloading.program.url)
    reloading.reload("log_level: warning\n", "reloaded")
    before = len(reloading.program.log())
    pika.BlockingConnection(url).close()
    reloading.reload("log_level: info\n", "reloaded")
    assert "accepting AMQP connection" not in reloading.program.log()[before:]
    pika.BlockingConnection(url).close()
    wait_until(lambda: "accepting AMQP connection" in reloading.program.log()[before:], "the log tells more again")


def test_limits_of_memory_and_disk(reloading: Reloading) -> None:
    with pika.BlockingConnection(pika.URLParameters(reloading.program.url)) as connection:
        reloading.reload("vm_memory_high_watermark.absolute: 1MB\ndisk_free_limit.absolute: 900MB\n")
        wait_until(lambda: reloading.node()["mem_alarm"] is True, "the memory alarm")
        node = reloading.node()
        assert (node["mem_limit"], node["disk_free_limit"]) == (1_000_000, 900_000_000)
        reloading.reload("vm_memory_high_watermark.absolute: 4GB\n")
        wait_until(lambda: reloading.node()["mem_alarm"] is False, "no memory alarm")
        node = reloading.node()
        # What the store may need is more than the default, and is what is in force.
        assert (node["mem_limit"], node["disk_free_limit"]) == (4_000_000_000, 3 * 16_777_216 + 33_554_432)
        connection.channel().queue_declare("q", exclusive=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("log_level: loud\n", "leveret.yaml:1: log_level: 'loud' is not allowed; give one of"),
        ("log_level: debug\nheartbaet: 5\n", "leveret.yaml:2: unknown option 'heartbaet'; did you mean 'heartbeat'?"),
        ("log_level: [\n", "leveret.yaml:2: is not YAML"),
    ],
)
def test_a_broken_configuration_is_refused(reloading: Reloading, content: str, said: str) -> None:
    refused = reloading.reload(content, "the configuration is not reloaded: ")
    assert said in refused
    assert "Traceback" not in refused
    pika.BlockingConnection(pika.URLParameters(reloading.program.url)).close()
    wait_until(lambda: "accepting AMQP connection" in reloading.program.log(), "the log level is the old one")


def test_a_file_that_is_gone_is_refused(reloading: Reloading, tmp_path: Path) -> None:
    (tmp_path / "leveret.yaml").unlink()
    reloading.program.signal(signal.SIGHUP)
    said = f"the configuration is not reloaded: {tmp_path / 'leveret.yaml'}: cannot be read: No such file or directory"
    wait_until(lambda: said in reloading.program.log(), said)


def test_what_needs_a_restart_is_named(reloading: Reloading) -> None:
    log = reloading.reload("heartbeat: 17\nlog_level: debug\nstorage.sync: off\n")
    said = "[warning] leveret: changed in the configuration, but only applied after a restart: heartbeat, storage.sync"
    assert said in log
    with pika.BlockingConnection(pika.URLParameters(reloading.program.url + "?heartbeat=600")) as connection:
        assert connection.is_open


def test_what_is_asked_of_clients_with_tls(tmp_path: Path) -> None:
    """Not only certificates: whether clients need one, and the versions."""
    certificates = make_certificates(tmp_path)
    issued = certificates.authority.issue(HOST)
    file = tmp_path / "leveret.yaml"
    files = f"certfile: {issued.certificate}, keyfile: {issued.key}, cacertfile: {certificates.authority.file}"
    base = f"ssl_options: {{{files}"
    file.write_text(base + "}\n")

    def without_certificate(_: object) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificates.authority.file))

    def of_version_1_2(_: object) -> ssl.SSLContext:
        context = without_certificate(None)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    with running(tmp_path, "--config", str(file), "--amqps-port", "0") as program:
        reloading = Reloading(program, file)

        def seen(context: Any) -> str:
            failure = Failure("", "amqps", context, "", "", greeting=b"no AMQP at all")
            return fail(failure, certificates, program.addresses["amqps"])[1]

        assert "AMQP" in seen(without_certificate)
        reloading.reload(base + ", verify: verify_peer, fail_if_no_peer_cert: true}\n")
        assert "certificate required" in seen(without_certificate).casefold().replace("_", " ")
        reloading.reload(base + ", versions: [tlsv1.3]}\n")
        assert "protocol version" in seen(of_version_1_2).casefold().replace("_", " ")
        assert "AMQP" in seen(without_certificate)


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue(HOST)
    file = tmp_path / "leveret.yaml"
    file.write_text(f"ssl_options: {{certfile: {issued.certificate}, keyfile: {issued.key}}}\n")
    with running(tmp_path, "--config", str(file), "--amqps-port", "0") as program:
        other = authority.issue(HOST)
        changed = f"ssl_options: {{certfile: {issued.certificate}, keyfile: {other.key}}}\n"
        log = Reloading(program, file).reload(f"log_level: error\n{changed}", "the configuration is not reloaded: ")
        assert "configuration reloaded" not in log
        program.signal(signal.SIGHUP)
        wait_until(lambda: program.log().count("is not reloaded") == 2, "the log level is the former one")
        assert "configuration reloaded" not in program.log()
        assert f"{other.key} is not the key of the certificate in {issued.certificate}" in program.log()


def test_the_log_as_json_in_a_file(tmp_path: Path) -> None:
    """Also after it was renamed; one that cannot be opened is refused, and so is the rest of that configuration."""
    file, log = tmp_path / "leveret.yaml", tmp_path / "leveret.log"
    content = f"log: {{file: {log}, console: false, formatter: json}}\n"
    file.write_text(content)

    def said(text: str, path: Path = log) -> bool:
        lines = path.read_text().splitlines() if path.exists() else []
        return any(text in entry["msg"] for entry in map(json.loads, lines) if list(entry) == KEYS)

    with running(tmp_path, "--config", str(file)) as program:
        wait_until(lambda: said("pure Python") or said("compiled"), "the log is in the file")
        (node,) = Management(program.http_url).request("GET", "nodes")
        assert node["log_files"] == [str(log)]
        log.rename(tmp_path / "leveret.log.1")
        program.signal(signal.SIGHUP)
        wait_until(lambda: said("configuration reloaded"), "another file has taken its place")
        file.write_text(f"log_level: error\nlog.file: {tmp_path}\n")
        program.signal(signal.SIGHUP)
        wait_until(lambda: said(f"is not reloaded: log.file: cannot write to {tmp_path}: Is a directory"), "refused")
        file.write_text("log.formatter: json\n")
        program.signal(signal.SIGHUP)
        wait_until(lambda: "configuration reloaded" in program.log(), "the log is on stderr")
        assert program.log().count("\n") == 1
    assert not said("stopped")
