"""A process that reads as Spark's driver does: it plans batches, reads them, and stores each once, until it is killed.

python -m tests.crash.reading_query DIRECTORY OUTPUT READER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from leveret.analytics.options import parse_options
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_reading import read_partition


def main(directory: str, output: str, reader: str) -> None:
    """Go on where the last process was, and read until killed."""
    source = MessageStream(parse_options({"path": directory, "reader": reader, "queue": "q*"}))
    folder = Path(output)
    start = _load(folder / "offset-0") or _store(folder / "offset-0", source.first())
    batch = 0
    while True:
        # Spark stores the end of a batch before it reads it, and repeats a batch that was not stored.
        planned = folder / f"offset-{batch + 1}"
        end = _load(planned) or source.advance(start, 2000)
        if end == start:
            time.sleep(0.05)
            continue
        _store(planned, end)
        rows = folder / f"rows-{batch + 1}"
        if not rows.exists():
            _store(rows, _read(source, start, end))
        batch, start = batch + 1, end


def _read(source: MessageStream, start: Any, end: Any) -> list[str]:
    found: list[str] = []
    for partition in source.partitions(start, end):
        for records in read_partition(partition, "messages", ["queue", "body"], fail_fast=True):
            found += [f"{row['queue']} {row['body'].decode()}" for row in records.to_pylist()]
    return found


def _load(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.exists() else None


def _store(path: Path, value: Any) -> Any:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(value))
    os.replace(draft, path)
    return value


if __name__ == "__main__":
    main(*sys.argv[1:])
