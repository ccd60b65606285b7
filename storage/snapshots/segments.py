"""Finds the segments of one store with live messages at a cut, in its directory and trash, and hard-links them."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from leveret.storage.disk.files import Files
from leveret.storage.disk.trash import NAME as TRASH
from leveret.storage.format import FOOTER_BYTES, Edit, EditOp, Stream, unpack_footer
from leveret.storage.segments.manifest import NAME as MANIFEST
from leveret.storage.segments.manifest import complete_groups
from leveret.storage.segments.segment import Segment, segment_of_name
from leveret.storage.seq_ranges import SeqRanges
from leveret.storage.snapshots.dead import ENDLESS, StoreDead, bounds_of, read_tail

#: Errors if the file system or its permissions do not allow hard links.
_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV, errno.EMLINK, errno.ENOTSUP})


class LinkRefusedError(Exception):
    """Hard links are not possible here."""


@contextmanager
def link_errors() -> Iterator[None]:
    """Convert errors of refused operations to LinkRefusedError.

    Raises:
        LinkRefusedError: The operation in the block is not allowed here.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise LinkRefusedError(str(error)) from error
        raise


def link(source: str, target: str) -> str:
    """Create a hard link; return its path.

    Raises:
        FileNotFoundError: The source does not exist.
        LinkRefusedError: Hard links are not possible here.
    """
    with link_errors():
        os.link(source, target)
    return target


#: Stream, first sequence number, generation.
Key: TypeAlias = tuple[int, int, int]
#: Maximum size of index and footer.
_TAIL_BYTES: Final = 4096 + FOOTER_BYTES


class StaleCutError(Exception):
    """Files with messages that were live at the cut are gone; a later cut must be used."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment file in a snapshot.

    Attributes:
        path: Path to read.
        moved_path: Path to which the broker may move it; empty if it is a link.
        qid: Number of its queue.
        priority: Priority of its store.
        salt: Checksum salt of the queue, used if the file's header is damaged.
        stream: Durable or spill.
        generation: Number of compactions of its messages.
        first_seq: First sequence number.
        last_seq: Last sequence number; if not sealed, the number before the next segment, or ENDLESS - 1.
        sealed: Whether the fields after `live` are known.
        live: Ascending bounds of the ranges of live numbers: first, end, first, end, and so on. A number in them has a
            live message if it has a record.
        records, body_bytes, min_arrived, max_arrived, max_expires: As in the manifest.
        data_len: Length of header and records in bytes.
    """

    path: str
    moved_path: str
    qid: int
    priority: int
    salt: int
    stream: int
    generation: int
    first_seq: int
    last_seq: int
    sealed: bool
    live: array[int]
    records: int = 0
    body_bytes: int = 0
    min_arrived: int = 0
    max_arrived: int = 0
    max_expires: int = 0
    data_len: int = 0

    @property
    def file_name(self) -> str:
        """Name of the file in its store's directory."""
        return Segment(Stream(self.stream), self.first_seq, self.generation).name

    @property
    def gapless(self) -> bool:
        """Whether it is known to have a record for every number from the first to the last."""
        return self.sealed and self.last_seq - self.first_seq + 1 == self.records

    @property
    def live_numbers(self) -> int:
        """Count of numbers in the live ranges; the number of live messages if it is gapless."""
        return sum(self.live[1::2]) - sum(self.live[::2])


class StorePaths(NamedTuple):
    """Source directory and link target of a store.

    Attributes:
        directory: Path of the store's directory.
        target: Path prefix of the links; None to create none.
    """

    directory: str
    target: str | None


class StoreId(NamedTuple):
    """Identity of a store.

    Attributes:
        qid: Number of the queue.
        priority: Priority within the queue.
        salt: Checksum salt of the queue.
    """

    qid: int
    priority: int
    salt: int


class Known(NamedTuple):
    """A segment's state in the manifest.

    Attributes:
        edit: Its last edit before a deletion.
        deleted: Time of its deletion in microseconds; None if it exists.
        began: Arrival of its first message in microseconds.
    """

    edit: Edit
    deleted: int | None
    began: int


def link_segments(files: Files, paths: StorePaths) -> dict[Key, tuple[str, str]]:
    """Create links to all segments of a store as fast as possible.

    Args:
        paths: Source directory and link target.
    Returns:
        Paths of the files, and paths to which they may move, by key.
    Raises:
        LinkRefusedError: Hard links are not possible here.
    """
    linked: dict[Key, tuple[str, str]] = {}
    # A file moved between the two listings is in the first one and linked from its new path.
    for directory in (paths.directory, f"{paths.directory}/{TRASH}"):
        for name in files.list_directory(directory):
            segment = segment_of_name(name)
            if segment is not None and key_of(segment) not in linked:
                path = _link(f"{directory}/{name}", f"{paths.directory}/{TRASH}/{name}", paths.target, name)
                if path is not None:
                    moved = f"{paths.directory}/{TRASH}/{name}" if paths.target is None else ""
                    linked[key_of(segment)] = path, moved
    return linked


def remove_deleted(linked: dict[Key, tuple[str, str]], known: dict[Key, Known], time: int) -> None:
    """Remove segments that were deleted before a time.

    Their live messages, if any, have been copied to other segments.
    """
    for key in list(linked):
        found = known.get(key)
        if found is not None and found.deleted is not None and found.deleted < time:
            del linked[key]


def count_missing(linked: dict[Key, tuple[str, str]], known: dict[Key, Known], time: int) -> int:
    """Return the number of missing segments that may have contained live messages at a time.

    Args:
        linked: Result of link_segments().
        known: Result of a later read_manifest().
        time: Time of the cut in microseconds.
    """
    return sum(
        deleted is not None and deleted >= time and key not in linked and began <= time
        for key, (_, deleted, began) in known.items()
    )


def segment_views(
    files: Files,
    linked: dict[Key, tuple[str, str]],
    known: dict[Key, Known],
    store: StoreId,
    dead: StoreDead | None,
) -> list[SegmentView]:
    """Return views of the linked segments, with each live message in exactly one of them.

    Args:
        linked: Result of link_segments().
        known: Result of read_manifest().
        store: Their store.
        dead: Dead messages; None to include them as live.
    """
    views: list[SegmentView] = []
    firsts = sorted({(key[0], key[1]) for key in linked})
    following = {pair: behind[1] for pair, behind in pairwise(firsts) if pair[0] == behind[0]}
    taken: dict[int, SeqRanges] = {}
    # Messages compacted since the cut are in two files; the older file has all of them.
    for key in sorted(linked, key=lambda each: (each[2], each[1])):
        stream, first, generation = key
        path, moved_path = linked[key]
        edit = _summary(files, known.get(key), path, key)
        last = edit.last_seq if edit is not None else following.get((stream, first), ENDLESS) - 1
        covered = taken.setdefault(stream, SeqRanges())
        bounds = dead.live_bounds(first, last + 1) if dead is not None else array("Q", (first, last + 1))
        live = _without(bounds, covered)
        covered.add(first, last + 1)
        if live:
            view = SegmentView(path, moved_path, *store, stream, generation, first, last, False, live)
            views.append(view if edit is None else _complete(view, edit))
    return sorted(views, key=lambda view: (view.first_seq, view.stream))


def _summary(files: Files, known: Known | None, path: str, key: Key) -> Edit | None:
    """Return the summary of a sealed segment from its manifest, or else from its file; None if it is not sealed."""
    if known is not None and known.edit.op not in (EditOp.NEW, EditOp.DEL):
        return known.edit
    try:
        found = unpack_footer(read_tail(files, path, _TAIL_BYTES)[1])
    except OSError:
        return None
    if found is None:
        return None
    footer = found[0]
    return Edit(
        EditOp.SEAL,
        key[0],
        0,
        footer.first_seq,
        footer.last_seq,
        footer.min_arrived,
        footer.max_arrived,
        footer.records,
        footer.data_len,
        footer.body_bytes,
        key[2],
        footer.max_expires,
    )


def _complete(view: SegmentView, edit: Edit) -> SegmentView:
    return replace(
        view,
        sealed=True,
        records=edit.records,
        body_bytes=edit.body_bytes,
        min_arrived=edit.min_arrived,
        max_arrived=edit.max_arrived,
        max_expires=edit.max_expires,
        data_len=edit.file_len,
    )


def key_of(segment: Segment) -> Key:
    """Return the key of a segment in the manifest."""
    return segment.stream, segment.first_seq, segment.generation


def read_manifest(files: Files, directory: str) -> dict[Key, Known]:
    """Read the state of all segments in a manifest, including deleted ones."""
    known: dict[Key, Known] = {}
    for edit in complete_groups(files.read_all(f"{directory}/{MANIFEST}") or b"")[0]:
        key = edit.stream, edit.first_seq, edit.generation
        if edit.op != EditOp.DEL:
            known[key] = Known(edit, None, edit.min_arrived)
        else:
            before = known.get(key)
            known[key] = Known(before.edit if before is not None else edit, edit.max_arrived, edit.min_arrived)
    return known


def read_open(path: str, moved_path: str, read: Callable[[str], bytes]) -> bytes:
    """Read a file that may have been moved.

    Raises:
        FileNotFoundError: It exists at neither path.
    """
    try:
        return read(path)
    except FileNotFoundError:
        if not moved_path:
            raise
        return read(moved_path)


def _link(path: str, moved_path: str, target: str | None, name: str) -> str | None:
    """Link a file from its path or the path it was moved to; return the link's path, or None if it is gone."""
    if target is None:
        return path
    for source in (path, moved_path):
        try:
            return link(source, f"{target}{name}")
        except FileNotFoundError:
            continue
    return None


def _without(bounds: array[int], covered: SeqRanges) -> array[int]:
    """Return ranges without the numbers in other ranges."""
    if not covered or not bounds:
        return bounds
    left = SeqRanges()
    for first, end in zip(bounds[::2], bounds[1::2], strict=True):
        at = first
        for start, stop in covered:
            if stop <= at or start >= end:
                continue
            if start > at:
                left.add(at, start)
            at = max(at, stop)
        if at < end:
            left.add(at, end)
    return bounds_of(left)
