"""Reads and writes a backup repository, on any file system that fsspec knows, encrypted if there is a key."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, BinaryIO, Final

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import DRAFT
from leveret.analytics.backup.layout import (
    FORMAT,
    MANIFESTS,
    MARKER,
    OBJECTS,
    BackupError,
    BackupName,
    BackupRefusedError,
    Manifest,
    StoredFile,
    object_path,
    pack_manifest,
    parse_name,
    unpack_manifest,
)

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
#: Seconds of deleting after which is looked whether that is still allowed.
_CHECK_SECONDS: Final = 1.0
#: Encrypted in the marker: whoever has another key is told so, and not that everything is damaged.
_KEY_CHECK: Final = b"leveret backup"


class Repository:
    """A backup repository.

    Args:
        url: A path, or a URL such as `s3://bucket/backup`.
        key_file: Path of a file with a key of 32 bytes, as they are, in hexadecimal digits or in base64; empty
            for none.
    Attributes:
        shown: The path or URL for error texts, without passwords.
    Raises:
        AnalyticsError: fsspec cannot open the URL, or there is no key in the file.
    """

    def __init__(self, url: str, key_file: str = "") -> None:
        self._files = ArchiveFiles(url)
        self._cipher = _Cipher(read_key(key_file)) if key_file else None
        self.shown = self._files.shown

    def is_inside(self, directory: str) -> bool:
        """Return whether the repository is in a local directory."""
        return self._files.is_inside(directory)

    def open(self) -> bytes | None:
        """Return the ID of the data directory that it belongs to; None if there is no repository.

        Raises:
            BackupError: It is damaged, of a newer version, or encrypted with another key.
            ArchiveError: It cannot be read.
        """
        octets = self._files.read(MARKER)
        if octets is None:
            return None
        where = f"{self.shown}/{MARKER}"
        try:
            fields: dict[str, Any] = json.loads(octets)
            form, store_id, check = int(fields["format"]), bytes.fromhex(fields["store"]), fields.get("key_check")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupError(f"{where} is damaged, or {self.shown} is not a backup of Leveret") from error
        if form > FORMAT:
            raise BackupRefusedError(f"{self.shown} was written by a newer version of Leveret; use that version")
        if check and self._cipher is None:
            raise BackupRefusedError(f"{self.shown} is encrypted: its key is needed (--key-file)")
        if self._cipher is not None:
            if not check:
                raise BackupRefusedError(f"{self.shown} is not encrypted, but a key is given")
            self._cipher.decrypt(MARKER, binascii.a2b_base64(check), where, "the key is another one")
        return store_id

    def make(self, store_id: bytes) -> None:
        """Make the repository of a data directory, if there is none.

        Raises:
            BackupRefusedError: It belongs to another data directory.
            AnalyticsError: See open(); or it cannot be written.
        """
        found = self.open()
        if found is None:
            if any(not name.endswith(DRAFT) for name in self._files.names("")):
                raise BackupRefusedError(f"{self.shown} is not empty, and is no backup of Leveret; use another place")
            fields: dict[str, object] = {"format": FORMAT, "store": store_id.hex()}
            if self._cipher is not None:
                check = self._cipher.encrypt(MARKER, _KEY_CHECK)
                fields["key_check"] = binascii.b2a_base64(check, newline=False).decode()
            self._files.create(MARKER, json.dumps(fields).encode() + b"\n")
        elif found != store_id:
            raise BackupRefusedError(
                f"{self.shown} has the backups of another data directory (ID {found.hex()}, not {store_id.hex()}); "
                "use another place"
            )

    def put(self, octets: bytes, known: Collection[tuple[str, int]] = ()) -> tuple[str, int]:
        """Store a part of a file, if it is not there; return its name and length in bytes.

        Args:
            octets: The part.
            known: Parts that are there for certain.
        Raises:
            ArchiveError: It could not be written.
        """
        name = self._name(octets)
        if (name, len(octets)) in known:
            return name, len(octets)
        path = object_path(name)
        try:
            self.create(path, octets)
        except FileExistsError:
            # The same octets, from an earlier backup or one that was killed. A loss of power may have cut them.
            if self._find(name, len(octets)) is None:
                self.remove(path)
                self.create(path, octets)
        return name, len(octets)

    def get(self, name: str, length: int) -> bytes:
        """Return a part of a file.

        Raises:
            BackupError: It is damaged or missing.
            ArchiveError: It cannot be read.
        """
        found = self._find(name, length)
        if found is None:
            raise BackupError(f"{self.shown}/{object_path(name)} is damaged or missing")
        return found

    def read(self, file: StoredFile) -> bytes:
        """Return the contents of a file; raises as get()."""
        return b"".join([self.get(*part) for part in file.parts])

    def require_backups(self) -> list[BackupName]:
        """Return the backups that there are, in order; at least one.

        Raises:
            BackupRefusedError: There is none, or no repository.
            AnalyticsError: See open().
        """
        if self.open() is None:
            raise BackupRefusedError(f"{self.shown} is not a backup of Leveret")
        found = self.backups()
        if not found:
            raise BackupRefusedError(f"{self.shown} has no backup")
        return found

    def backups(self) -> list[BackupName]:
        """Return the backups that there are, in order.

        Raises:
            ArchiveError: They cannot be listed.
        """
        found = sorted(name for each in self.names(MANIFESTS) if (name := parse_name(each)) is not None)
        numbers = [each.number for each in found]
        if len({*numbers}) == len(numbers):
            return found
        # Of two with one number, that of the later claim counts; see writers.py.
        ranked = sorted(found, key=lambda each: (each.number, numbers.count(each.number) > 1 and self._writer(each)))
        return [*{each.number: each for each in ranked}.values()]

    def _writer(self, name: BackupName) -> int:
        try:
            return self.read_manifest(name).writer
        except BackupError:
            return -1

    def delete_strays(self, since: BackupName, known: Collection[BackupName], writer: int) -> None:
        """Delete manifests that somebody has written who had lost the repository.

        Args:
            since: The last backup before the claim of who has it now.
            known: Backups that are none.
            writer: Number of that claim.
        Raises:
            ArchiveError: One could not be read or deleted.
        """
        found = [name for each in self.names(MANIFESTS) if (name := parse_name(each)) is not None]
        strays = [each for each in found if each.number > since.number and each not in known]
        self.delete(each for each in strays if self._writer(each) < writer)

    def read_manifest(self, name: BackupName) -> Manifest:
        """Read a manifest.

        Raises:
            BackupError: It is damaged or missing.
            ArchiveError: It cannot be read.
        """
        where = f"{self.shown}/{name.path}"
        octets = self.read_file(name.path)
        if octets is None:
            raise BackupError(f"{where} is missing")
        found = unpack_manifest(octets, where)
        if found.name != name:
            raise BackupError(f"{where} is damaged: it has the contents of number {found.name.number}")
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Write a manifest, which makes a backup valid.

        Raises:
            ArchiveError: It could not be written, or that is not known.
        """
        self.create(manifest.name.path, pack_manifest(manifest))

    def files_at(self, name: BackupName) -> dict[str, StoredFile]:
        """Return the files of a backup by path.

        Raises:
            BackupError: A manifest that is needed is damaged or missing.
            ArchiveError: They cannot be read.
        """
        names = [each for each in self.backups() if each <= name]
        full = max((each for each in names if each.is_full), default=None)
        if full is None or names[-1] != name or names[-1].number - full.number != len(names) - names.index(full) - 1:
            raise BackupError(f"{self.shown}/{name.path}: a manifest that it builds on is missing")
        files: dict[str, StoredFile] = {}
        for each in names[names.index(full) :]:
            self.read_manifest(each).apply(files)
        return files

    def delete(self, backups: Iterable[BackupName]) -> None:
        """Delete manifests.

        Raises:
            ArchiveError: One could not be deleted.
        """
        for each in backups:
            self.remove(each.path)

    def delete_objects(self, kept: set[str], check: Callable[[], object]) -> int:
        """Delete all objects but some; return how many.

        Args:
            kept: Their names.
            check: Raises an exception if somebody else writes to the repository: what it needs must stay.
        Raises:
            ArchiveError: One could not be deleted.
        """
        paths = [path for path in self._files.paths_below(OBJECTS) if path.rpartition("/")[2] not in kept]
        checked = -_CHECK_SECONDS
        for path in paths:
            # This process may have been paused.
            if time.monotonic() - checked >= _CHECK_SECONDS:
                check()
                checked = time.monotonic()
            self.remove(path)
        return len(paths)

    # --- single files -------------------------------------------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        """Return the sorted names of what is in a directory; an empty list if it does not exist.

        Raises:
            ArchiveError: It cannot be listed.
        """
        return self._files.names(directory)

    def create(self, path: str, octets: bytes) -> None:
        """Make a file in one step.

        Raises:
            FileExistsError: It exists.
            ArchiveError: It could not be made, or that is not known.
        """
        self._files.create(path, octets if self._cipher is None else self._cipher.encrypt(path, octets))

    def read_file(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist.

        Raises:
            BackupError: It is damaged.
            ArchiveError: It cannot be read.
        """
        octets = self._files.read(path)
        if octets is None or self._cipher is None:
            return octets
        return self._cipher.decrypt(path, octets, f"{self.shown}/{path}", "it is damaged")

    def remove(self, path: str) -> None:
        """Delete a file, if it exists.

        Raises:
            ArchiveError: It could not be deleted.
        """
        self._files.delete(path)

    def is_beginning(self, stored: StoredFile, file: BinaryIO) -> bool:
        """Return whether a file begins with what is stored."""
        file.seek(0)
        for name, length in stored.parts:
            octets = file.read(length)
            if (name, length) != (self._name(octets), len(octets)):
                return False
        return True

    def _find(self, name: str, length: int) -> bytes | None:
        """Return the contents of an object if they are what its name says."""
        try:
            octets = self.read_file(object_path(name))
        except BackupError:
            return None
        return octets if octets is not None and len(octets) == length and self._name(octets) == name else None

    def _name(self, octets: bytes) -> str:
        if self._cipher is not None:
            # With a plain hash, whoever sees the repository could try what a message says.
            return self._cipher.name(octets)
        return hashlib.sha256(octets).hexdigest()


class _Cipher:
    """Encrypts what is in a repository."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise BackupRefusedError(
                "a key needs the Python package cryptography; install it: pip install 'leveret[backup]'"
            ) from error
        self._aes = AESGCM(hmac.digest(key, b"encryption", "sha256"))
        self._naming = hmac.digest(key, b"names", "sha256")

    def name(self, octets: bytes) -> str:
        return hmac.digest(self._naming, octets, "sha256").hex()

    def encrypt(self, path: str, octets: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aes.encrypt(nonce, octets, path.encode())

    def decrypt(self, path: str, octets: bytes, where: str, otherwise: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._aes.decrypt(octets[:_NONCE_BYTES], octets[_NONCE_BYTES:], path.encode())
        except (InvalidTag, ValueError) as error:
            raise BackupError(f"{where}: {otherwise}") from error


def read_key(path: str) -> bytes:
    """Return the key in a file.

    Raises:
        BackupRefusedError: It cannot be read, or has no key.
    """
    try:
        with open(path, "rb") as file:
            octets = file.read(4096)
    except OSError as error:
        raise BackupRefusedError(f"the key file {path}: {error.strerror}") from error
    if len(octets) == _KEY_BYTES:
        return octets
    text = octets.strip()
    for decode in (binascii.unhexlify, lambda each: binascii.a2b_base64(each, strict_mode=True)):
        try:
            key = decode(text)
        except (binascii.Error, ValueError):
            continue
        if len(key) == _KEY_BYTES:
            return bytes(key)
    raise BackupRefusedError(
        f"the key file {path} has no key: 32 random bytes are needed, as they are, in hexadecimal digits or in base64 "
        "(openssl rand -hex 32)"
    )
