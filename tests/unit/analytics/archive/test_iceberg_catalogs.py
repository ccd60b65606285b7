"""Catalogs that are full, that refuse the archiver, or that are away: the archive has its rows all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.errors import ArchiveError
from tests.spark.directories import DirectoryBuilder
from tests.support.iceberg import archive_into, keys_of_archive, keys_of_table, table_in, tables_of
from tests.support.small_disk import fill, small_disk


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data")
    publish(builder)
    yield builder
    builder.close()


@pytest.fixture
def files(tmp_path: Path) -> ArchiveFiles:
    return ArchiveFiles(str(tmp_path / "archive"))


def publish(builder: DirectoryBuilder) -> None:
    queue = next(iter(builder.engine.queues.values()), None) or builder.queue("q")
    builder.publish(builder.store(queue), [b"x"] * 5)
    builder.tick()


def test_a_full_catalog(builder: DirectoryBuilder, files: ArchiveFiles, tmp_path: Path) -> None:
    with small_disk(tmp_path, "tmpfs", 2) as mounted:
        catalog = f"sqlite:///{mounted}/catalog.db"
        fill(mounted / "filler")
        with pytest.raises(ArchiveError, match=r"the Iceberg catalog sqlite:.* is full: .*; make room") as caught:
            archive_into(builder, files, tables_of(files, catalog))
        assert "\n" not in str(caught.value)
        assert keys_of_archive(files.url).total() == 5
        (mounted / "filler").unlink()
        publish(builder)
        archive_into(builder, files, tables_of(files, catalog))
        assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
        assert keys_of_archive(files.url).total() == 10


class Refusing(BaseHTTPRequestHandler):
    """A REST catalog that refuses everything but its configuration."""

    def do_GET(self) -> None:
        """Answer a request."""
        is_config = self.path.split("?")[0].endswith("/config")
        error = {"error": {"message": "not yours", "type": "ForbiddenException", "code": 403}}
        document = {"defaults": {}, "overrides": {}} if is_config else error
        octets = json.dumps(document).encode()
        self.send_response(200 if is_config else 403)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_a_catalog_that_refuses_the_archiver(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        said = "refuses the archiver: ForbiddenException: not yours; give it the right to make tables and to commit"
        with pytest.raises(ArchiveError, match=said):
            archive_into(builder, files, tables_of(files, f"http://127.0.0.1:{server.server_port}"))
    finally:
        server.shutdown()
        server.server_close()
    assert keys_of_archive(files.url).total() == 5


def test_a_catalog_that_is_away(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    with pytest.raises(ArchiveError, match=r"the Iceberg catalog http://127.0.0.1:1 cannot be reached: .* the archive"):
        archive_into(builder, files, tables_of(files, "http://127.0.0.1:1"))
    assert keys_of_archive(files.url).total() == 5


def test_a_database_that_is_away(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    """PostgreSQL is asked by the driver that pyiceberg's extra installs."""
    catalog = "postgresql://me:secret-word@127.0.0.1:1/lake"
    with pytest.raises(ArchiveError, match=r"cannot be reached: \(psycopg2.OperationalError\) .* refused") as caught:
        archive_into(builder, files, tables_of(files, catalog))
    assert "secret-word" not in str(caught.value)
    assert keys_of_archive(files.url).total() == 5


def test_a_name_that_nobody_has_configured(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    with pytest.raises(ArchiveError, match=r"the Iceberg catalog nowhere has an error: .*; see pyiceberg's"):
        archive_into(builder, files, tables_of(files, "nowhere"))


def test_passwords_are_not_shown(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    with pytest.raises(ArchiveError) as caught:
        archive_into(builder, files, tables_of(files, "http://me:secret-word@127.0.0.1:1"))
    assert "secret-word" not in str(caught.value)
