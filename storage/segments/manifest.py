"""The manifest of a store: which segments it has, and what is in them, without opening any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.commit.group import CommitGroup
from leveret.storage.disk.files import Files, replace_file, write_draft, write_file
from leveret.storage.format import EDIT_BYTES, Edit, EditOp, pack_edit, unpack_edit

NAME: Final = "MANIFEST"
#: It is rewritten once it has this many edits, and four times as many as it needs.
_EDITS_MIN: Final = 64
#: Microseconds for which it says what was deleted: readers that have just taken a cut want to know.
_REMEMBERED_US: Final = 600_000_000
#: What an edit says of how many follow in its group is 16 bits long.
_GROUP_MAX: Final = 1 << 16


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
        files: The file system interface.
        directory: Path of the store's directory.
    """

    __slots__ = ("_directory", "_edits", "_files", "_is_new", "_long_at", "_size", "_unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._unsynced = False
        #: It has taken the place of another one.
        self._is_new = False
        self._size = 0
        self._edits = 0
        #: It is worth while to look whether it can be shorter once it has so many edits.
        self._long_at = 4 * _EDITS_MIN

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

        Args:
            edits: Any number. They count all or none, unless there are more than 65,536 of them.
        Raises:
            OSError: None was written.
        """
        last = len(edits) - 1
        octets = b"".join(pack_edit(edit._replace(left=(last - at) % _GROUP_MAX)) for at, edit in enumerate(edits))
        path = f"{self._directory}/{NAME}"
        # There are as many of these files as stores, and little is written to them: they are not kept open.
        handle = self._files.open(path, create=True)
        try:
            if self._files.size(path) > self._size:
                self._files.truncate(handle, self._size)
            write_file(self._files, handle, octets, self._size)
        finally:
            self._files.close(handle)
        self._unsynced = True
        self._size += len(octets)
        self._edits += len(edits)

    def collect(self, group: CommitGroup) -> None:
        """Have what was appended synced."""
        if self._unsynced:
            group.journal_paths[f"{self._directory}/{NAME}"] = None
        if self._is_new:
            group.directories[self._directory] = None
        self._unsynced = self._is_new = False

    def shorten_if_long(self, group: CommitGroup, now: int) -> None:
        """Have it written again, without what nobody needs any more, if it has got long.

        Args:
            group: Syncs the draft, which then takes its place unless more was appended in the meantime.
            now: Microseconds since 1970.
        """
        if self._edits < self._long_at:
            return
        path = f"{self._directory}/{NAME}"
        try:
            edits, _, size = _edits_of(self._files.read_all(path) or b"")
            kept = _still_needed(edits, now - _REMEMBERED_US)
            self._long_at = 4 * (len(kept) + _EDITS_MIN)
            if size == self._size and 2 * len(kept) < len(edits):
                write_draft(self._files, f"{path}.tmp", b"".join(map(pack_edit, kept)))
                group.paths[f"{path}.tmp"] = None
                group.callbacks.append(partial(self._put_in_place, size, len(kept)))
        except OSError:
            # No room, as a rule. It is tried again when it is longer still.
            self._long_at = 2 * self._edits

    def _put_in_place(self, size: int, edits: int) -> None:
        """Let the draft of what it was at a size take its place."""
        path = f"{self._directory}/{NAME}"
        try:
            if self._size != size:
                self._files.unlink(f"{path}.tmp")
                return
            self._files.rename(f"{path}.tmp", path)
        except OSError:
            # Its queue has been deleted.
            return
        self._edits = edits
        self._size = edits * EDIT_BYTES
        self._unsynced = self._is_new = True

    def is_long(self, segments: int) -> bool:
        """Return whether it is worth while to rewrite it for this many segments."""
        return self._edits >= _EDITS_MIN and self._edits > 4 * segments

    def rewrite(self, edits: Iterable[Edit]) -> None:
        """Replace all edits by these; there may be no appended ones that wait to be synced.

        Raises:
            OSError: The old manifest holds.
        """
        octets = b"".join(pack_edit(edit) for edit in edits)
        replace_file(self._files, self._directory, NAME, octets)
        self._size = len(octets)
        self._edits = self._size // EDIT_BYTES


def _edits_of(octets: bytes) -> tuple[list[Edit], int, int]:
    """Return the edits of whole groups, how many places held none, and where the last whole group ends.

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


def _still_needed(edits: Sequence[Edit], since: int) -> list[Edit]:
    """What is left of edits without segments that were deleted before a time in microseconds, each edit by itself."""
    gone: set[tuple[int, int, int]] = set()
    kept: list[Edit] = []
    for edit in reversed(edits):
        key = edit.stream, edit.first_seq, edit.generation
        if edit.op == EditOp.DEL and edit.max_arrived < since:
            gone.add(key)
        if key not in gone:
            kept.append(edit._replace(left=0))
    return kept[::-1]
