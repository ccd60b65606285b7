"""Files of an export: one export at a time writes to a directory, and what an interrupted one has left is removed.

Spark reads only files that are in its lists, in `_spark_metadata`. Other programs read all, also those of 0 bytes, and
those whose messages are written again when the export is repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from leveret.analytics.errors import AnalyticsError

#: Has a list for each batch; every tenth has all that came before, too.
_LISTS: Final = "_spark_metadata"


@contextmanager
def only_export(output: str) -> Iterator[None]:
    """Keep other exports away from a directory, in which only finished files are at the beginning and at the end.

    Args:
        output: The directory. One that is not local is left alone.
    Raises:
        AnalyticsError: Another export writes to it, or a file cannot be removed.
    """
    if "://" in output:
        yield
        return
    os.makedirs(output, exist_ok=True)
    handle = os.open(output, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AnalyticsError(f"another export writes to {output}; wait until it has ended") from error
        _remove_unfinished(Path(output))
        yield
        _remove_unfinished(Path(output))
    finally:
        os.close(handle)


def _remove_unfinished(output: Path) -> None:
    """Remove what an interrupted batch has left: files of Spark that came after its last list, and are in none."""
    lists = [*output.glob(f"{_LISTS}/[0-9]*")]
    if not (output / _LISTS).is_dir():
        return
    finished = {name for each in lists for name in _names_in(each)}
    since = max((each.stat().st_mtime_ns for each in lists), default=0)
    for path in output.glob("vhost_dir=*/queue_dir=*/date=*/part-*.parquet"):
        if str(path.relative_to(output)) not in finished and path.stat().st_mtime_ns >= since:
            try:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            except OSError as error:
                raise AnalyticsError(f"{path} is of an interrupted export and cannot be removed: {error}") from error


def _names_in(batch: Path) -> Iterator[str]:
    """Yield the names of the files in a list. It has absolute paths, of the place where the directory was then."""
    # The first line is the version of the list.
    for line in batch.read_text(encoding="utf-8").splitlines()[1:]:
        path = unquote(urlsplit(json.loads(line)["path"]).path)
        yield path[path.rindex("/vhost_dir=") + 1 :]
