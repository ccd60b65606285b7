"""The file `archived-to.json` in a data directory: the archive into which it is copied.

The archiver writes it when it begins; if there are several archives, the last one counts. Only readers use it, to say
where events are that are older than the event log. It is a JSON object with a checksum (`pack_checked()`). One that is
damaged counts as none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.storage.disk.files import Files, replace_file
from leveret.storage.format import is_text, pack_checked, unpack_checked
from leveret.storage.url_secrets import without_secrets

NAME: Final = "archived-to.json"
_FORMAT: Final = 1
#: Longest file that is read, in bytes.
_LIMIT: Final = 64 << 10


class ArchiveNote(NamedTuple):
    """Contents of the file.

    Attributes:
        url: Absolute path or URL of the archive, without a password.
        broker: Name of the broker in it.
    """

    url: str
    broker: str


def pack_note(note: ArchiveNote) -> bytes:
    """Return the contents of the file; user and password are left out."""
    return pack_checked({"format": _FORMAT, "url": without_secrets(note.url), "broker": note.broker})


def unpack_note(octets: bytes) -> ArchiveNote | None:
    """Return what a file says; None if it is damaged, or a newer version has written it."""
    try:
        fields = unpack_checked(octets)
        url, broker = fields["url"], fields["broker"]
        is_whole = fields["format"] <= _FORMAT and is_text(url) and is_text(broker)
        return ArchiveNote(url, broker) if is_whole else None
    except (ValueError, KeyError, TypeError):
        return None


def write_note(files: Files, path: str, note: ArchiveNote) -> None:
    """Write the file, if it does not say the same.

    Args:
        note: What it is to say.
    Raises:
        OSError: It could not be written; an older file is unchanged.
    """
    octets = pack_note(note)
    if _read(files, path) != octets:
        replace_file(files, path, NAME, octets)


def read_note(files: Files, path: str) -> ArchiveNote | None:
    """Return what the file in a data directory says; None if there is none that can be read."""
    octets = _read(files, path)
    return None if octets is None else unpack_note(octets)


def _read(files: Files, path: str) -> bytes | None:
    try:
        return files.read_foreign(f"{path}/{NAME}", _LIMIT)
    except OSError:
        return None
