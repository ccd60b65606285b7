r"""What is in a backup repository, and how it is written.

    leveret-backup.json          JSON: format, store (ID of the data directory), key_check if it is encrypted
    objects/ab/ab12…             a part of a file; the name is the SHA-256 of its contents, or with a key their HMAC
    manifests/0000000012-1795853141793266-full
                                 number, time of its cut in microseconds since 1970, kind: `full` names all files,
                                 `log` those that are not as in the manifest before. After a number that is left out
                                 there is none before: what was between the two cannot be restored
    writers/0000000003           JSON: who writes manifests; see writers.py

A manifest is compressed JSON with a checksum. `files` maps the path of a file in the data directory to null, if it is
gone, or to [size, checksum of its last 4 KiB, [[object, length], …]]. Below `deleted/` are the files of queues that
were deleted since the backup before, for moments between the two. `definitions` has what the definitions were between
them, `about` what taking it has cost. With a key, objects, manifests and writers are encrypted with AES-256-GCM and
their path as associated data: 12 octets nonce, then the ciphertext.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from leveret.analytics.errors import AnalyticsError
from leveret.storage.format import crc_of, pack_checked

FORMAT: Final = 1
MARKER: Final = "leveret-backup.json"
OBJECTS: Final = "objects"
MANIFESTS: Final = "manifests"
#: File of a data directory with its definitions.
DEFINITIONS: Final = "definitions.sqlite"
#: In the paths of a manifest: the definitions after the queues were read, if they had changed while that was done.
LATER_DEFINITIONS: Final = "definitions.sqlite.later"
#: Directory, in the paths of a manifest, of what was deleted since the one before.
DELETED: Final = "deleted"
#: Octets at the end of a file that are compared before only what follows is sent.
TAIL_BYTES: Final = 4096

_NAME: Final = re.compile(r"(\d{10})-(\d{16,20})-(full|log)")


class BackupError(AnalyticsError):
    """A backup cannot be taken, read or restored; the message says what and why."""


class BackupRefusedError(BackupError):
    """What was asked for does not fit the repository or the directory, so that trying it again changes nothing."""


class StoredFile(NamedTuple):
    """A file of a data directory in a backup.

    Attributes:
        size: Its size in bytes.
        tail: CRC-32 of its last TAIL_BYTES octets.
        parts: Names of its objects and their lengths in bytes, in order.
    """

    size: int
    tail: int
    parts: tuple[tuple[str, int], ...]


class BackupName(NamedTuple):
    """What the name of a manifest says.

    Attributes:
        number: Its number, ascending from 1.
        time: Moment of the backup in microseconds since 1970.
        is_full: Whether it names all files, so that those before it are not needed to read it.
    """

    number: int
    time: int
    is_full: bool

    @property
    def path(self) -> str:
        """Path of the manifest in the repository."""
        return f"{MANIFESTS}/{self.number:010d}-{self.time:016d}-{'full' if self.is_full else 'log'}"


class Manifest(NamedTuple):
    """A manifest.

    Attributes:
        name: Its number, time and kind.
        files: Files by path; None for one that is gone.
        about: What it cost: `sent` bytes and `seconds`. Earlier versions have not written it.
        definitions: When the definitions were read since the backup before, in microseconds since 1970, and what they
            were; only where they had changed.
        writer: Number of the claim by which it was written; 0 if an earlier version has written it.
    """

    name: BackupName
    files: Mapping[str, StoredFile | None]
    about: Mapping[str, Any] = MappingProxyType({})
    definitions: Sequence[tuple[int, StoredFile]] = ()
    writer: int = 0

    def apply(self, files: dict[str, StoredFile]) -> None:
        """Make the files of the backup before those of this one."""
        for path, file in self.files.items():
            if file is None:
                files.pop(path, None)
            else:
                files[path] = file

    def stored(self) -> Iterator[tuple[str, StoredFile]]:
        """Yield all that is stored for it, with its path in the data directory."""
        yield from ((path, file) for path, file in self.files.items() if file is not None)
        yield from ((DEFINITIONS, file) for _, file in self.definitions)


def parse_name(name: str) -> BackupName | None:
    """Return what the name of a file in MANIFESTS says; None if it is no manifest."""
    match = _NAME.fullmatch(name)
    return match and BackupName(int(match[1]), int(match[2]), match[3] == "full")


def object_path(name: str) -> str:
    """Return the path of an object."""
    return f"{OBJECTS}/{name[:2]}/{name}"


def pack_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest."""
    files = {path: None if file is None else list(file) for path, file in manifest.files.items()}
    # The checksum is of the text, so JSON's own forms are used before it is made.
    written = {
        "format": FORMAT,
        "name": list(manifest.name),
        "files": files,
        "about": {**manifest.about},
        "definitions": [[time, list(file)] for time, file in manifest.definitions],
        "writer": manifest.writer,
    }
    fields = json.loads(json.dumps(written))
    return zlib.compress(pack_checked(fields), 3)


def unpack_manifest(octets: bytes, where: str) -> Manifest:
    """Decode a manifest.

    Args:
        octets: Its contents.
        where: Its path, for the error.
    Raises:
        BackupError: It is damaged, or was written by a newer version.
    """
    try:
        fields: dict[str, Any] = json.loads(zlib.decompress(octets))
        crc = fields.pop("crc")
        if fields["format"] > FORMAT:
            raise BackupRefusedError(f"{where} was written by a newer version of Leveret; restore with that version")
        if crc != crc_of(fields):
            raise ValueError("its checksum is wrong")
        files = {path: None if file is None else _stored(file) for path, file in fields["files"].items()}
        definitions = tuple((time, _stored(file)) for time, file in fields.get("definitions", ()))
        name, about = BackupName(*fields["name"]), fields.get("about", {})
        return Manifest(name, files, about, definitions, fields.get("writer", 0))
    except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
        raise BackupError(f"{where} is damaged: {error}") from error


def _stored(fields: list[Any]) -> StoredFile:
    return StoredFile(fields[0], fields[1], tuple((part[0], part[1]) for part in fields[2]))
