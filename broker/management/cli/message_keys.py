"""Reads the keys of messages from files, as Spark, pandas and others write them: CSV with a header, or JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

#: The columns that make a key; others are ignored.
COLUMNS: Final = ("queue_id", "store_priority", "seq")
_INT64_END: Final = 1 << 63


class MessageKey(NamedTuple):
    """The key of a message in the table `messages`.

    Attributes:
        queue_id: Number of its queue on disk.
        store_priority: Its priority in the files.
        seq: Its number.
    """

    queue_id: int
    store_priority: int
    seq: int


def read_keys(source: str, stdin: TextIO) -> Iterator[MessageKey]:
    """Iterate over the keys in a file, or in all files of a directory that Spark has written.

    Args:
        source: Path of the file or directory; `-` for standard input.
        stdin: Standard input.
    Raises:
        OSError: A file cannot be read.
        ValueError: A line has no key; the text says which.
    """
    if source == "-":
        yield from _read(stdin, "standard input")
        return
    path = Path(source)
    for each in _parts(path) if path.is_dir() else [path]:
        with each.open(encoding="utf-8-sig", newline="") as file:
            yield from _read(file, str(each))


def _parts(directory: Path) -> list[Path]:
    """Return the files of a directory, without those that say that Spark has finished, and checksums."""
    return sorted(each for each in directory.iterdir() if each.is_file() and each.name[0] not in "._")


def _read(file: TextIO, name: str) -> Iterator[MessageKey]:
    lines = iter(file)
    try:
        first = next(lines, "")
        read: Callable[[Iterator[str]], Iterator[tuple[int, Mapping[str, Any]]]]
        read = _json_lines if first.lstrip().startswith("{") else _csv_rows
        rows = read(chain([first], lines)) if first else iter(())
        yield from (_key(row, number) for number, row in rows)
    except UnicodeDecodeError:
        raise ValueError(f"{name} is neither CSV nor JSON lines") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}, {error}") from None


def _json_lines(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: not a JSON object")
            yield number, row


def _csv_rows(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(lines)
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"line 1: the header does not name {' and '.join(missing)}")
    for row in rows:
        yield rows.line_num, row


def _key(row: Mapping[str, Any], number: int) -> MessageKey:
    values = []
    for name, end in zip(COLUMNS, (_INT64_END, 256, _INT64_END), strict=True):
        value = row.get(name)
        text = value if isinstance(value, str) else "" if isinstance(value, bool) else str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < end):
            raise ValueError(f"line {number}: {name} is {json.dumps(value)}")
        values.append(int(text))
    return MessageKey(*values)
