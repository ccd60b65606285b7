"""The manifest of a store: the list of its segments with their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.commit import CommitGroup
from leveret.storage.disk.files import Files, replace_file, write_draft, write_file
from leveret.storage.format import EDIT_BYTES, Edit, EditOp, pack_edit, unpack_edit

NAME: Final = "MANIFEST"
#: It is rewritten only if it has at least this many edits, four times as many as needed.
_EDITS_MIN: Final = 64
#: Retention of deletions in microseconds, for readers with a recent cut.
_REMEMBERED_US: Final = 600_000_000
#: The number of remaining edits of a group has 16 bits.
_GROUP_MAX: Final = 1 << 16


class ManifestContents(NamedTuple):
    """Contents of a manifest.

    Attributes:
        segments: The last edit, NEW or SEAL, of each segment that has not been deleted; by stream, first sequence
            number and generation.
        deleted: Deleted segments; their files may still exist.
        damaged: Number of unreadable edits.
    """

    segments: dict[tuple[int, int, int], Edit]
    deleted: set[tuple[int, int, int]]
    damaged: int


class Manifest:
    """Appends edits to a store's manifest, and shortens it.

    Args:
        directory: Path of the store's directory.
    """

    __slots__ = ("_directory", "_edits", "_files", "_is_new", "_long_at", "_size", "_unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._unsynced = False
        #: It has replaced an older file since the last commit group.
        self._is_new = False
        self._size = 0
        self._edits = 0
        #: Number of edits at which to check whether it can be shortened.
        self._long_at = 4 * _EDITS_MIN

    def read(self) -> ManifestContents:
        """Read all edits; incomplete groups are ignored."""
        try:
            octets = self._files.read_all(f"{self._directory}/{NAME}") or b""
        except OSError:
            return ManifestContents({}, set(), 1)
        edits, damaged, self._size = complete_groups(octets)
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
                # One that had no message was deleted, and the next message began another one of the same name.
                deleted.discard(key)
        return ManifestContents(segments, deleted, damaged)

    def append(self, edits: Sequence[Edit]) -> None:
        """Write a group of edits; the next commit group syncs them.

        Args:
            edits: The edits. They are applied all or none, unless there are more than 65,536 of them.
        Raises:
            OSError: None was written.
        """
        last = len(edits) - 1
        octets = b"".join(pack_edit(edit._replace(left=(last - at) % _GROUP_MAX)) for at, edit in enumerate(edits))
        path = f"{self._directory}/{NAME}"
        # There is one per store, and writes are rare, so the file is not kept open.
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
        """Add the manifest to a commit group if edits were appended."""
        if self._unsynced:
            group.journal_paths[f"{self._directory}/{NAME}"] = None
        if self._is_new:
            group.directories[self._directory] = None
        self._unsynced = self._is_new = False

    def shorten_if_long(self, group: CommitGroup, clock: Callable[[], int]) -> None:
        """Write a draft without unneeded edits if the manifest has become long.

        Args:
            group: Syncs the draft, which then replaces the manifest unless edits were appended in the meantime.
            clock: Microseconds since 1970.
        """
        if self._edits < self._long_at:
            return
        path = f"{self._directory}/{NAME}"
        try:
            edits, _, size = complete_groups(self._files.read_all(path) or b"")
            kept = _without_deleted(edits, clock() - _REMEMBERED_US)
            self._long_at = 4 * (len(kept) + _EDITS_MIN)
            if size == self._size and 2 * len(kept) < len(edits):
                write_draft(self._files, f"{path}.tmp", b"".join(map(pack_edit, kept)))
                group.paths[f"{path}.tmp"] = None
                group.callbacks.append(partial(self._put_in_place, size, len(kept)))
        except OSError:
            # Usually no space. Retried when the manifest is longer.
            self._long_at = 2 * self._edits

    def _put_in_place(self, size: int, edits: int) -> None:
        """Replace the manifest by the draft, if its size is still the same."""
        path = f"{self._directory}/{NAME}"
        try:
            if self._size != size:
                self._files.unlink(f"{path}.tmp")
                return
            self._files.rename(f"{path}.tmp", path)
        except OSError:
            # The queue has been deleted.
            return
        self._edits = edits
        self._size = edits * EDIT_BYTES
        self._unsynced = self._is_new = True

    def is_long(self, segments: int) -> bool:
        """Return whether it should be rewritten for this many segments."""
        return self._edits >= _EDITS_MIN and self._edits > 4 * segments

    def rewrite(self, edits: Iterable[Edit]) -> None:
        """Replace all edits. There must be no unsynced edits.

        Raises:
            OSError: The old manifest is unchanged.
        """
        octets = b"".join(pack_edit(edit) for edit in edits)
        replace_file(self._files, self._directory, NAME, octets)
        self._size = len(octets)
        self._edits = self._size // EDIT_BYTES


def complete_groups(octets: bytes) -> tuple[list[Edit], int, int]:
    """Return the edits of complete groups, the number of damaged edits, and the end offset of the last complete group.

    The next append truncates the rest, which could otherwise seem to belong to the new group.
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
            # The group is incomplete.
            group.clear()
        group.append(edit)
        if not edit.left:
            edits += group
            group.clear()
            end = at + EDIT_BYTES
    return edits, damaged, end


def _without_deleted(edits: Sequence[Edit], since: int) -> list[Edit]:
    """Return edits without those of segments deleted before a time in microseconds, each as its own group."""
    gone: set[tuple[int, int, int]] = set()
    kept: list[Edit] = []
    for edit in reversed(edits):
        key = edit.stream, edit.first_seq, edit.generation
        if edit.op == EditOp.DEL and edit.max_arrived < since:
            gone.add(key)
        if key not in gone:
            kept.append(edit._replace(left=0))
    return kept[::-1]
