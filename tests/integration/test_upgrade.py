"""Data directories of other versions, as the program meets them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from leveret.storage.directory.directory_format import pack_format
from tests.integration.program import run, running


def test_a_newer_data_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    data = tmp_path / "data"
    before = (data / "FORMAT").read_bytes()
    (data / "FORMAT").write_bytes(pack_format(bytes(16), 1, version=1000))
    refused = run("--port", "0", "--data-dir", str(data))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"leveret: cannot use the data directory {data}: {data} was written by a newer version (format 1000); use that"
        " version or another directory\n"
    )
    (data / "FORMAT").write_bytes(before)
    with closing(sqlite3.connect(data / "definitions.sqlite")) as database:
        database.execute("pragma user_version = 1000")
    refused = run("--port", "0", "--data-dir", str(data))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"leveret: {data / 'definitions.sqlite'} was written by a newer version of Leveret (schema 1000, this"
        " version supports 1); use that version or another data directory\n"
    )
