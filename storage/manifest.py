"""The manifest of a store: which segments it has, and what is in them, without opening any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from storage.commit_group import CommitGroup
from storage.files import Files, replace_file, write_file
from storage.format import EDIT_BYTES, Edit, EditOp, pack_edit, unpack_edit

NAME: Final = "MANIFEST"
#: It is written anew once it has so many edits, and four times as many as it needs.
_EDITS_MIN: Final = 64


class ManifestContents(NamedTuple):
    """What was found in a manifest.

    Attributes:
        segments: The last edit, NEW or SEAL, of each segment that has not been deleted; by stream, first sequence
            number and generation.
        deleted: Segments whose deletion is noted; their files may be there still.
        damaged: Edits that could not be read.
    """

    segments: dict[tuple[int, int, int], Edit]
    deleted: set[tuple[int, int, int]]
    damaged: int


class Manifest:
    """Appends edits.

    Args:
        files: The seam to the operating system.
        directory: Path of the store's directory.
    """

    __slots__ = ("_directory", "_edits", "_files", "_handle", "_size")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._handle = -1
        self._size = 0
        self._edits = 0

    def read(self) -> ManifestContents:
        """Read all edits. What is half written is left out."""
        try:
            octets = self._files.read_all(f"{self._directory}/{NAME}") or b""
        except OSError:
            return ManifestContents({}, set(), 1)
        edits, damaged, self._size = _edits_of(octets)
        self._edits = self._size // EDIT_BYTES
        segments: dict[tuple[int, int, int], Edit] = {}
        deleted: set[tuple[int, int, int]] = set()
        for edit in edits:
            key = edit.stream, edit.first_seq, edit.generation
            if edit.op == EditOp.DEL:
                segments.pop(key, None)
                deleted.add(key)
            elif edit.op in (EditOp.NEW, EditOp.SEAL, EditOp.COMPACTED):
                segments[key] = edit
        return ManifestContents(segments, deleted, damaged)

    def append(self, edits: Sequence[Edit]) -> None:
        """Write edits that belong together; they are on the disk once a commit group has them.

        Raises:
            OSError: None was written.
        """
        octets = b"".join(pack_edit(edit._replace(left=len(edits) - 1 - at)) for at, edit in enumerate(edits))
        if self._handle < 0:
            path = f"{self._directory}/{NAME}"
            self._handle = self._files.open(path, create=True)
            if self._files.size(path) > self._size:
                self._files.truncate(self._handle, self._size)
        write_file(self._files, self._handle, octets, self._size)
        self._size += len(octets)
        self._edits += len(edits)

    def collect(self, group: CommitGroup) -> None:
        """Have what was appended synced, and the file closed after that."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            group.journals[handle] = None
            group.callbacks.append(lambda: self._files.close(handle))

    def is_long(self, segments: int) -> bool:
        """Whether it is worth while to write it anew for so many segments."""
        return self._edits >= _EDITS_MIN and self._edits > 4 * segments

    def rewrite(self, edits: Iterable[Edit]) -> None:
        """Replace all edits by these; there may be no appended ones that wait to be synced.

        Raises:
            OSError: The old manifest holds.
        """
        octets = b"".join(pack_edit(edit) for edit in edits)
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
        replace_file(self._files, self._directory, NAME, octets)
        self._size = len(octets)
        self._edits = self._size // EDIT_BYTES

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1


def _edits_of(octets: bytes) -> tuple[list[Edit], int, int]:
    """The edits of whole groups, how many places held none, and where the last whole group ends.

    What follows there is cut by the next append, which it could be taken to belong to.
    """
    end = 0
    edits: list[Edit] = []
    group: list[Edit] = []
    damaged = 0
    for at in range(0, len(octets) - EDIT_BYTES + 1, EDIT_BYTES):
        edit = unpack_edit(octets, at)
        if edit is None:
            damaged += 1
            group.clear()
            continue
        if group and group[-1].left != edit.left + 1:
            # The rest of the group was never written.
            group.clear()
        group.append(edit)
        if not edit.left:
            edits += group
            group.clear()
            end = at + EDIT_BYTES
    return edits, damaged, end
