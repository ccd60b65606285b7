"""`leveret check-config`: all that is wrong at once, where it stands, and nothing started."""

from __future__ import annotations

import datetime
import io
import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from leveret import LeveretThread
from leveret.broker.check import check_config
from leveret.broker.config.load import load
from leveret.broker.config.options import OPTIONS, Settings
from leveret.storage.directory.directory_format import pack_format


class Files:
    """A folder with a configuration and what it names.

    Args:
        folder: Must exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "leveret.yaml"
        self._authority = trustme.CA()

    def certificate(self, name: str, expires: datetime.datetime | None = None) -> tuple[Path, Path]:
        """A certificate and its key."""
        made = self._authority.issue_cert("localhost", not_after=expires)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        made.cert_chain_pems[0].write_to_path(str(certificate))
        made.private_key_pem.write_to_path(str(key))
        return certificate, key

    def check(self, content: str, *arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str, list[str]]:
        """Exit status, output and problems for a configuration file."""
        self.config.write_text(content)
        out, err = io.StringIO(), io.StringIO()
        words = ["--config", str(self.config), "--data-dir", str(self.folder / "data"), *arguments]
        status = check_config(words, environ or {}, out, err)
        problems = err.getvalue().splitlines()
        assert all(each.startswith("leveret: ") for each in problems)
        return status, out.getvalue(), [each.removeprefix("leveret: ") for each in problems]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_nothing_is_wrong(files: Files) -> None:
    assert files.check("heartbeat: 30\n") == (0, "the configuration is valid\n", [])
    assert not (files.folder / "data").exists()


def test_everything_that_is_wrong_is_told(files: Files) -> None:
    (files.folder / "definitions.json").write_text('{"users":\n  [}')
    certificate, _ = files.certificate("one")
    _, key = files.certificate("other")
    status, out, problems = files.check(
        "prot: 1\n"
        "heartbeat: soon\n"
        "management_port: 5672\n"
        "amqps_port: 0\n"
        "ssl_options:\n"
        f"  certfile: {certificate}\n"
        f"  keyfile: {key}\n"
        "  cacertfile: missing.pem\n"
        "  verify: verify_peer\n"
        f"load_definitions: {files.folder / 'definitions.json'}\n"
        "policies: [{name: p}]\n",
        "--set",
        "listeners.tcp=127.0.0.1:1,[2001:db8::1]:2",
        environ={"LEVERET_CHANNEL_MAX": "many"},
    )
    at = f"{files.config}:"
    assert problems == [
        f"{at}1: unknown option 'prot'; did you mean 'port'?",
        f"{at}2: heartbeat: 'soon' is not allowed; give 0..65535 s, as a number or with ms, s, m, h, d or w",
        "LEVERET_CHANNEL_MAX: channel_max: 'many' is not allowed; give a whole number 0..65535",
        "--set: listeners.tcp: cannot listen on 2001:db8::1: Cannot assign requested address",
        f"{at}7: ssl_options.keyfile: {key} is not the key of the certificate in {certificate}",
        f"{at}8: ssl_options.cacertfile: cannot read missing.pem: No such file or directory",
        f"{at}10: load_definitions: {files.folder / 'definitions.json'}:2:4: is not JSON: Expecting value",
        f"{at}11: policies: policy 'p': [{{key_missing,pattern}},{{key_missing,definition}}]",
    ]
    assert (status, out) == (1, "")


def test_the_exit_status_is_the_brokers(files: Files) -> None:
    assert files.check("prot: 1\n")[0] == 1
    assert files.check("", "--prot", "1")[0] == 2
    assert files.check("", "--set", "prot")[0] == 2
    assert files.check("", environ={"LEVERET_PORT": "x"})[0] == 1


def test_permissions_of_the_default_user(files: Files) -> None:
    status, _, problems = files.check("default_permissions:\n  write: '('\n  read: 'a('\n")
    assert status == 1
    assert problems == [
        f"{files.config}:2: default_permissions.write: '(' is not a regular expression: missing )",
        f"{files.config}:3: default_permissions.read: 'a(' is not a regular expression: missing )",
    ]


def test_a_name_that_no_directory_can_have(files: Files) -> None:
    status, _, problems = files.check("", "--data-dir", "x" * 300)
    assert (status, problems) == (1, [f"--data-dir: data_dir: {'x' * 300}: File name too long"])


def test_a_port_twice(files: Files) -> None:
    status, _, problems = files.check("management_port: 5672\n")
    assert (status, problems) == (
        1,
        [f"{files.config}:1: amqp and management cannot both have port 5672 on 0.0.0.0"],
    )
    assert files.check("{port: 0, management_port: 0, prometheus_port: 0}\n")[0] == 0


def test_an_address_that_cannot_be_had(files: Files) -> None:
    _, _, problems = files.check("host: [127.0.0.1, 203.0.113.1]\n")
    assert problems == [f"{files.config}:1: host: cannot listen on 203.0.113.1: Cannot assign requested address"]


def test_a_port_that_is_in_use_may_be_the_brokers_own(files: Files) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert files.check(f"{{host: 127.0.0.1, port: {taken.getsockname()[1]}}}\n")[0] == 0


def test_certificates(files: Files) -> None:
    certificate, key = files.certificate("good")
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired, expired_key = files.certificate("old", yesterday)
    empty = files.folder / "empty.pem"
    empty.touch()

    def problems(**changes: object) -> list[str]:
        given = {"certfile": certificate, "keyfile": key} | changes
        lines = "".join(f"ssl_options.{name}: {value}\n" for name, value in given.items())
        return [each.partition(": ")[2] for each in files.check(f"amqps_port: 0\n{lines}")[2]]

    assert problems() == []
    content = f"{{amqps_port: 0, ssl_options: {{certfile: {expired}, keyfile: {expired_key}}}}}"
    assert files.check(content) == (
        0,
        "the configuration is valid\n",
        [f"warning: {files.config}:1: ssl_options.certfile: {expired} has expired on {yesterday:%Y-%m-%d}"],
    )
    assert problems(certfile=empty) == [f"ssl_options.certfile: {empty} holds no certificate in PEM form"]
    assert problems(keyfile=empty) == [
        f"ssl_options.keyfile: {empty} holds no private key in PEM form, or ssl_options.password is not its password"
    ]
    assert problems(certfile="none", keyfile="none") == [
        # Neither has a line that is not said already.
        "ssl_options.certfile: TLS requires ssl_options.certfile and ssl_options.keyfile",
        "ssl_options.keyfile: TLS requires ssl_options.certfile and ssl_options.keyfile",
    ]
    assert problems(ciphers="no-such") == ["ssl_options.ciphers: OpenSSL supports none of no-such"]
    assert problems(fail_if_no_peer_cert="true") == [
        "ssl_options.fail_if_no_peer_cert: requires ssl_options.verify: verify_peer"
    ]


def test_without_a_port_for_tls_certificates_do_not_matter(files: Files) -> None:
    assert files.check("ssl_options.certfile: /nowhere.pem\n")[0] == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[]", "must be a JSON object, as RabbitMQ exports it, not a list"),
        ("null", "must be a JSON object, as RabbitMQ exports it, not a null"),
        ('{"queues": [{"name": "q"}]}', "queues: {'name': 'q'}: 'vhost' must be a string"),
        ('{"queues": 1}', "queues: must be a list, is int"),
        ('{"permissions": [{"user": "x", "vhost": "/"}]}', "permissions"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_definitions(files: Files, content: str, text: str) -> None:
    path = files.folder / "definitions.json"
    path.write_text(content)
    status, _, problems = files.check("", "--import-definitions", str(path))
    (problem,) = problems
    assert problem.startswith(f"--import-definitions: load_definitions: {path}: ")
    assert text in problem
    assert status == 1


def test_the_data_directory(files: Files) -> None:
    data = files.folder / "data"
    data.touch()
    assert files.check("")[2] == [f"--data-dir: data_dir: {data} is not a directory"]
    data.unlink()
    data.mkdir()
    (data / "FORMAT").write_bytes(pack_format(bytes(16), 1))
    assert files.check("")[0] == 0
    (data / "FORMAT").write_bytes(b"{}")
    assert files.check("")[2] == [f"--data-dir: data_dir: {data / 'FORMAT'} is damaged; restore it from a backup"]


def test_what_is_in_force_can_be_used_as_a_configuration(files: Files) -> None:
    content = (
        "storage.sync: interval(200)\n"
        "listeners.tcp: ['127.0.0.1:5672', '[::1]:5672', 1234]\n"
        "compat.advertise: RabbitMQ 3.10.8\n"
        'definitions: {users: [{name: "a: b", password: x, tags: []}]}\n'
        "vm_memory_high_watermark.absolute: 2GB\n"
        "loopback_users: []\n"
    )
    status, out, _ = files.check(content, "--print", "--port", "7")
    assert status == 0
    assert f'storage.sync: "interval(200)"  # {files.config}:1\n' in out
    assert "port: 7  # --port\n" in out
    assert "heartbeat: 60  # default\n" in out
    again = files.folder / "again.yaml"
    again.write_text(out)
    words = {"--port": 7, "data_dir": files.folder / "data"}
    before = load(files.config, {"LEVERET_PORT": "7", "LEVERET_DATA_DIR": str(words["data_dir"])})
    assert load(again, {}) == replace(before, definitions={"********": "********"}), "all but what is secret"


def test_secrets_are_not_printed(files: Files) -> None:
    out = files.check("default_pass: top-secret\n", "--print")[1]
    assert "top-secret" not in out + repr(load(files.config, {}))
    assert f'default_pass: "********"  # {files.config}:1\n' in out
    for wrong in ("archive.url: [top-secret]", "default_pass: [top-secret]", "definitions: top-secret"):
        assert "top-secret" not in "".join(files.check(wrong)[2])
    _, _, (problem,) = files.check("definitions: {global_parameters: [{value: top-secret}]}\n")
    assert problem.endswith(" global_parameters: {}: 'name' must be a string")


def test_all_defaults_are_printed(files: Files) -> None:
    out = files.check("", "--print")[1]
    assert [line.partition(":")[0] for line in out.splitlines()] == list(OPTIONS)
    path = files.folder / "again.yaml"
    path.write_text("".join(line for line in out.splitlines(keepends=True) if not line.startswith("data_dir")))
    assert load(path, {}) == Settings()


def test_definitions_may_speak_of_what_the_data_directory_has(files: Files) -> None:
    path = files.folder / "definitions.json"
    path.write_text(json.dumps({"queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": {}}]}))
    assert files.check(f"load_definitions: {path}\n")[0] == 0


def test_definitions_are_loaded_as_a_start_loads_them(files: Files) -> None:
    """All that they name may be in another option, or on disk, and all types of queues are there."""
    path = files.folder / "definitions.json"
    stream = {"name": "log", "vhost": "shop", "durable": True, "arguments": {"x-queue-type": "stream"}}
    path.write_text(json.dumps({"vhosts": [{"name": "shop"}], "queues": [stream]}))
    policy = '{name: p, vhost: shop, pattern: ".*", definition: {max-length: 1}}'
    content = f"load_definitions: {path}\npolicies: [{policy}]\n"
    assert files.check(content) == (0, "the configuration is valid\n", [])
    with LeveretThread(files.folder / "data", options={"load_definitions": str(path)}):
        # Of a broker that runs, too.
        assert files.check(f"policies: [{policy}]\ndefault_permissions.read: '('\n")[0] == 0, "there is no new user"
    path.write_text(json.dumps({"vhosts": [{"name": "other"}]}))
    assert files.check(content)[0] == 0


def test_options_of_a_directory_are_checked(files: Files) -> None:
    content = (
        "auth_backends: [ldap]\nauth_ldap.servers: [ldap.example.com]\nauth_ldap.vhost_access_query: {in_grup: x}\n"
    )
    text = "auth_ldap.vhost_access_query: {in_grup, x} is not a query"
    assert files.check(content) == (1, "", [f"{files.config}:3: {text}"])
    assert files.check(content.replace("in_grup", "in_group"))[0] == 0
