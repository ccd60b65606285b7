"""Places for backups that are full, read-only, half written or of a newer version: one line each, nothing changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore, selects
from leveret.storage.format import pack_checked
from tests.integration.program import run as run_program
from tests.integration.test_backup import bodies_in, publish, settle
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

BODIES = [b"%d" % number + bytes(2000) for number in range(300)]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program(*map(str, arguments))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with a queue."""
    directory = tmp_path_factory.mktemp("backed-up")
    with LeveretProcess(directory) as process:
        with Connection(process.url) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", BODIES)
        settle(process)
        yield process.data_dir


def one_line(said: subprocess.CompletedProcess[str], text: str) -> None:
    """Expect a refusal."""
    assert (said.returncode, said.stdout, len(said.stderr.splitlines())) == (1, "", 1), said.stderr
    assert text in said.stderr


@pytest.mark.parametrize(
    ("options", "text"), [("size=256k", "No space left on device"), ("ro,size=1m", "Read-only file system")]
)
def test_a_place_that_is_full_or_read_only(data: Path, tmp_path: Path, options: str, text: str) -> None:
    where = tmp_path / "place"
    where.mkdir()
    # A file system of the process's own.
    command = f"mount -t tmpfs -o {options} tmpfs {where} && exec {sys.executable} -m leveret backup --data-dir {data}"
    said = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{command} --to {where}/backup"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    one_line(said, text)


class Refusing(BaseHTTPRequestHandler):
    """A store of objects that gives no rights."""

    def refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET = do_PUT = do_POST = refuse  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("is_there", "text"), [(True, "Forbidden"), (False, "Could not connect to the endpoint URL")])
def test_a_bucket_that_is_away_or_without_rights(data: Path, tmp_path: Path, is_there: bool, text: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port if is_there else 1}",
            "AWS_ACCESS_KEY_ID": "name",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        url, restored = "s3://bucket/backup", tmp_path / "r"
        for command in (
            ("backup", "--data-dir", str(data), "--to", url),
            ("restore", "--from", url, "--data-dir", str(restored)),
            ("verify", "--from", url),
        ):
            one_line(run_program(*command, environment=environment), text)
        server.shutdown()
    assert not restored.exists()


def test_half_a_backup_does_not_count(data: Path, tmp_path: Path) -> None:
    url = tmp_path / "backup"
    for _ in range(2):
        assert run("backup", "--data-dir", data, "--to", url).returncode == 0
    first, second = sorted((url / "manifests").iterdir())
    # As if it had been killed before the manifest.
    second.unlink()
    found = verify(Repository(str(url)))
    assert (len(found.whole), found.damage) == (1, [])
    restore(Repository(str(url)), str(tmp_path / "r"), None, selects(None, None))
    assert bodies_in(tmp_path / "r", "q") == BODIES
    first.unlink()
    one_line(run("restore", "--from", url, "--data-dir", tmp_path / "none"), "backup has no backup")
    one_line(run("verify", "--from", url), "backup has no backup")
    assert not (tmp_path / "none").exists()
    # The next one makes it whole again.
    assert run("backup", "--data-dir", data, "--to", url).returncode == 0
    assert run("verify", "--from", url).returncode == 0


def test_a_manifest_of_a_newer_version(data: Path, tmp_path: Path) -> None:
    url = tmp_path / "backup"
    assert run("backup", "--data-dir", data, "--to", url).returncode == 0
    (manifest,) = (url / "manifests").iterdir()
    fields = json.loads(zlib.decompress(manifest.read_bytes()))
    del fields["crc"]
    manifest.write_bytes(zlib.compress(pack_checked({**fields, "format": 99})))
    text = "was written by a newer version of Leveret; restore with that version"
    one_line(run("restore", "--from", url, "--data-dir", tmp_path / "r"), text)
    assert not (tmp_path / "r").exists()
    one_line(run("backup", "--data-dir", data, "--to", url), text)


def test_a_copy_of_a_data_directory_is_refused_only_where_it_is_another_one(data: Path, tmp_path: Path) -> None:
    """One that was copied to another machine has the same ID, and goes on in the same place."""
    url, copy = tmp_path / "backup", tmp_path / "copy"
    assert run("backup", "--data-dir", data, "--to", url).returncode == 0
    shutil.copytree(data, copy)
    assert run("backup", "--data-dir", copy, "--to", url).returncode == 0
    assert len(verify(Repository(str(url))).whole) == 2


@pytest.mark.parametrize("command", ["backup", "restore", "verify"])
def test_help_needs_no_library(command: str, tmp_path: Path) -> None:
    (tmp_path / "fsspec.py").write_text("raise ModuleNotFoundError('gone', name='fsspec')")
    program = [sys.executable, "-m", "leveret", command]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    said = subprocess.run([*program, "--help"], capture_output=True, text=True, env=environment, check=False, cwd="/")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"usage: leveret {command}")
    given = ["--data-dir", "d", "--to", "b"] if command == "backup" else ["--from", "b"]
    said = subprocess.run([*program, *given], capture_output=True, text=True, env=environment, check=False, cwd="/")
    one_line(said, "the Python package fsspec is missing; install what it needs: pip install 'leveret[backup]'")
