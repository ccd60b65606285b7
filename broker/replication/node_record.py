"""What a node remembers of its data directory: whether it is a whole copy, and where it stands."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from leveret.storage.clock import Clock
from leveret.storage.directory.directory_format import read_format
from leveret.storage.disk.files import DiskFiles, replace_file
from leveret.storage.disk.recording import OWN_NAMES
from leveret.storage.readers.reader_file import BACKUP_READER, ReaderFileError, hold_for_backup, read_reader

log = logging.getLogger("leveret.replication")

_FILE: Final = "node.json"
#: Directory of what belongs to replication on this machine, in the data directory.
OWN: Final = "replication"
#: Directory of what an old leader had and nobody had confirmed, in the data directory.
DIVERGED: Final = "diverged"
#: One thread at a time writes since when backups need what is dropped.
_HOLDING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Where a node's data directory stands.

    Attributes:
        doing: `nothing`, `leading`, `following`; or `leaving` and `entering` while a copy takes the place of what was
            there.
        epoch: The epoch that it has followed or led last.
        number: Number of the last operation in it; valid if it does nothing.
    """

    doing: str = "nothing"
    epoch: int = 0
    number: int = 0

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and number from which it can be continued; the epoch is 0 if that is not known."""
        return (self.epoch, self.number) if self.doing == "nothing" else (0, 0)


def read_record(root: Path) -> NodeRecord:
    """Return what a data directory's record says; of one that has never been replicated, nothing.

    Raises:
        OSError: It cannot be read.
        ValueError: It is malformed.
    """
    try:
        fields = json.loads((root / OWN / _FILE).read_bytes())
        return NodeRecord(str(fields["doing"]), int(fields["epoch"]), int(fields["number"]))
    except FileNotFoundError:
        return NodeRecord()
    except (KeyError, TypeError) as error:
        raise ValueError(f"{root / OWN / _FILE} is malformed") from error


def write_record(root: Path, record: NodeRecord) -> None:
    """Write a data directory's record, and sync it.

    Raises:
        OSError: It cannot be written.
    """
    (root / OWN).mkdir(parents=True, exist_ok=True)
    replace_file(DiskFiles(), str(root / OWN), _FILE, json.dumps(asdict(record)).encode())


def incoming(root: Path) -> Path:
    """Return where a copy is received."""
    return root / OWN / "incoming"


def finish_switch(root: Path, record: NodeRecord) -> NodeRecord:
    """Put the copy that has been received in the place of what was there, as far as that is not done.

    Returns:
        The record afterwards.
    Raises:
        OSError: A file cannot be moved; the next start goes on.
    """
    old, new = root / OWN / "old", incoming(root)
    if record.doing == "leaving":
        old.mkdir(exist_ok=True)
        for each in root.iterdir():
            if each.name not in OWN_NAMES and each.name != DIVERGED:
                each.replace(old / each.name)
        record = replace(record, doing="entering")
        write_record(root, record)
    if record.doing == "entering":
        for each in new.iterdir():
            each.replace(root / each.name)
        DiskFiles().sync_directory(str(root))
        record = replace(record, doing="nothing")
        write_record(root, record)
    shutil.rmtree(new, ignore_errors=True)
    return record


def store_id(root: Path) -> str:
    """Return the ID of a data directory; "" if it is empty or has none.

    Raises:
        DataDirectoryError: Its format is damaged.
        OSError: It cannot be read.
    """
    found = read_format(DiskFiles(), str(root))
    return "" if found is None else found.store_id.hex()


def read_hold(root: Path) -> int:
    """Return since when the next backup needs what is dropped, in microseconds since 1970; 0 if that was not noted."""
    try:
        found = read_reader(DiskFiles(), str(root), BACKUP_READER)
    except ReaderFileError as error:
        log.warning("%s", error)
        return 0
    return 0 if found is None else found.since or 0


def write_hold(root: Path, since: int) -> None:
    """Note since when the next backup needs what is dropped: whoever leads must keep it.

    Args:
        root: The data directory.
        since: Microseconds since 1970.
    """
    try:
        with _HOLDING:
            hold_for_backup(DiskFiles(), str(root), since, Clock().now())
    except OSError as error:
        log.warning("cannot note since when the next backup needs what is dropped: %s", error)


def is_empty(root: Path) -> bool:
    """Return whether nothing of a broker is in a directory."""
    return not root.exists() or not {each.name for each in root.iterdir()} - OWN_NAMES - {DIVERGED}
