"""The consecutive segments of one stream of a store."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Final

from leveret.storage.commit.committer import CommitGroup
from leveret.storage.commit.redo_log import Tail
from leveret.storage.disk.holds import Content
from leveret.storage.format import DURABLE, Edit, EditOp, Stream
from leveret.storage.interface import Entry
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.reader import SegmentReader
from leveret.storage.segments.segment import Arrival, Segment, StorePlace
from leveret.storage.segments.segment_writer import SegmentWriter
from leveret.storage.seq_ranges import SeqRanges, runs_of


class SegmentChain:
    """Appends to the active segment, starts a new one when it is full, and finds the segment of a message.

    Args:
        segments: Recovered segments in order; those sealed by recovery are synced by the first commit group.
        is_further: Whether the stream has other chains before; see MessageLog.

    Attributes:
        segments: All segments in order.
        has_dead: Whether there may be segments for drop_dead().
        members: The numbers written to a further chain; None for the first chain of a stream.
        readers: A reader for messages that are read in order, and one for messages that have been taken before.
    """

    __slots__ = (
        "_collected", "_dropped", "_firsts", "_just_sealed", "_last_tail", "_manifest", "_new_names", "_place",
        "_retired", "_sealed", "_to_sync", "_unsynced", "_writer", "has_dead", "members", "readers", "segments",
        "stream",
    )  # fmt: skip

    def __init__(
        self,
        place: StorePlace,
        stream: Stream,
        manifest: Manifest,
        segments: Sequence[Segment] = (),
        is_further: bool = False,
    ) -> None:
        self._place = place
        self.stream = stream
        self._manifest = manifest
        self.segments = list(segments)
        self.has_dead = any(segment.live <= 0 for segment in segments)
        self.members = SeqRanges() if is_further else None
        self.readers: Final = SegmentReader(place), SegmentReader(place)
        self._firsts = [segment.first_seq for segment in segments]
        self._writer: SegmentWriter | None = None
        #: Bytes of the active segment that are already in commit groups.
        self._collected = 0
        self._unsynced = False
        self._new_names = False
        #: What was last added to a commit group.
        self._last_tail: Tail | None = None
        #: Paths of files closed before they were synced.
        self._to_sync: list[str] = []
        #: Sealed segments, to be synced before the manifest records them as sealed.
        self._sealed: list[SegmentWriter] = []
        self._just_sealed = [segment for segment in segments if segment.sealed and not segment.synced]
        #: Files to close, of dropped or unsealable segments.
        self._retired: list[SegmentWriter] = []
        #: Segments whose files must be moved to the trash.
        self._dropped: list[Segment] = []

    def append(self, batch: Sequence[Arrival]) -> None:
        """Write messages.

        Args:
            batch: Messages in order of sequence number, higher than all before.
        Raises:
            OSError: Only messages up to last_seq were written.
        """
        try:
            self._write(batch)
        finally:
            if self.members is not None:
                last = self.last_seq
                for first, end in runs_of([seq for seq, _, _ in batch if seq <= last]):
                    self.members.add(first, end)

    def _write(self, batch: Sequence[Arrival]) -> None:
        at = 0
        self._place.descriptors.note_append(self)
        while at < len(batch):
            writer = self._writer
            if writer is None or writer.full:
                writer = self._begin(batch[at][0])
            try:
                at = writer.write(batch, at)
            except FileNotFoundError:
                # The file was removed by another process. Its messages are reported as lost when they are read.
                self._writer = None
            else:
                self._unsynced = True

    @property
    def last_seq(self) -> int:
        """The highest sequence number; 0 if there is none."""
        return self.segments[-1].last_seq if self.segments else 0

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum([segment.size for segment in self.segments])

    @property
    def active(self) -> Segment | None:
        """The segment that messages are appended to; None if there is none."""
        return self._writer.segment if self._writer is not None else None

    def find(self, seq: int) -> Segment | None:
        """Return the segment whose range contains a sequence number; None if there is none."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0 or self.segments[at].last_seq < seq:
            return None
        return self.segments[at]

    def overlapping(self, first: int, end: int) -> list[Segment]:
        """Return the segments that may contain numbers from `first` to `end`, excluded."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        stop = bisect_right(self._firsts, end - 1)
        return self.segments[at:stop]

    def bury(self, first: int, end: int, body_bytes: int, entries: Sequence[Entry]) -> int:
        """Count messages as dead in their segments, see MessageLog.bury(); return about how many bytes this frees."""
        writer = self._writer
        if writer is not None and writer.segment.first_seq <= first:
            # All are in the active segment: they were settled soon after their arrival.
            freed = writer.segment.bury(end - first, body_bytes)
            if writer.segment.live <= 0 and (writer.full or self.members is not None):
                self.has_dead = True
            return freed
        freed = 0
        for segment in self.overlapping(first, end):
            low, high = max(first, segment.first_seq), min(end, segment.last_seq + 1)
            if high > low:
                freed += segment.bury(high - low, bytes_of_part(low, high, first, end, body_bytes, entries))
                self.has_dead = self.has_dead or segment.live <= 0
        return freed

    def recount(self, first: int, end: int, dead: DeadSet) -> int:
        """Count the live messages of the segments of a range again; return the bytes that the dead ones free."""
        freed = 0
        for segment in self.overlapping(first, end):
            before = segment.live_size
            try:
                segment.set_live(self.readers[1].count_live(segment, dead))
            except FileNotFoundError:
                segment.set_live(0)
            freed += max(0, before - segment.live_size)
            self.has_dead = self.has_dead or segment.live <= 0
        return freed

    def drop_dead(self, keep_active: bool) -> bool:
        """Drop segments without live messages.

        Args:
            keep_active: Keep the active segment.
        Returns:
            False if the disk was too full to update the manifest.
        """
        self.has_dead = False
        active = self.active
        keep_active = keep_active and self._writer is not None and not self._writer.full
        dead = [
            each for each in self.segments if each.live <= 0 and not (keep_active and each is active) and not each.busy
        ]
        if not dead:
            return True
        try:
            self._manifest.append(self._deletions(dead))
        except OSError:
            # Durable segments stay until the manifest can be updated, as a missing file would count as lost. Spill
            # segments are dropped nevertheless: only a snapshot taken now would miss them.
            if self.stream is DURABLE:
                self.has_dead = True
                return False
        if self._writer is not None and active in dead:
            self._retired.append(self._writer)
            self._writer = None
        gone = set(dead)
        self._retired += [writer for writer in self._sealed if writer.segment in gone]
        self._sealed = [writer for writer in self._sealed if writer.segment not in gone]
        self._dropped += dead
        self.segments = [each for each in self.segments if each not in gone]
        self._firsts = [each.first_seq for each in self.segments]
        return True

    def replace(self, sources: Sequence[Segment], copy: Segment | None) -> bool:
        """Replace segments by a copy that contains all their live messages.

        Args:
            sources: Adjacent segments, marked busy; the mark is removed.
            copy: The copy; None if no messages are live.
        Returns:
            False if nothing was replaced: the disk is full, or some of the sources are gone.
        """
        for source in sources:
            source.busy = False
        self.has_dead = self.has_dead or any(source.live <= 0 for source in sources)
        at = bisect_right(self._firsts, sources[0].first_seq) - 1
        if at < 0 or self.segments[at : at + len(sources)] != list(sources):
            return False
        if copy is None:
            return True
        edits = self._deletions(sources)
        if self.stream is DURABLE:
            edits.insert(0, copy.edit(EditOp.COMPACTED if copy.settled else EditOp.SEAL))
        try:
            self._manifest.append(edits)
        except OSError:
            return False
        self._dropped += sources
        self.segments[at : at + len(sources)] = [copy]
        self._firsts[at : at + len(sources)] = [copy.first_seq]
        return True

    def _deletions(self, segments: Sequence[Segment]) -> list[Edit]:
        """Return the manifest edits of dropped segments, with the time for readers."""
        now = self._place.clock()
        return [each.edit(EditOp.DEL)._replace(max_arrived=now) for each in segments]

    def seal_active(self) -> None:
        """Seal the active segment; the next message starts a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._seal(writer)
            # It may have been kept only because it was active.
            self.has_dead = self.has_dead or writer.segment.live <= 0

    @property
    def has_dropped(self) -> bool:
        """Whether dropped files use disk space until the next commit."""
        return bool(self._dropped)

    def collect(self, group: CommitGroup) -> None:
        """Add written files to a commit group, and moves of dropped files to the trash after it."""
        if self.stream is DURABLE and self._unsynced and self._writer is not None and self._writer.handle >= 0:
            self._add_tail(group, self._writer)
        self._unsynced = False
        if self._new_names or self._just_sealed or self._to_sync or self._sealed or self._retired or self._dropped:
            self._collect_files(group)

    def _collect_files(self, group: CommitGroup) -> None:
        """Add what is rare to a commit group: files that are new, complete, closed or dropped."""
        if self.stream is DURABLE:
            for writer in self._sealed:
                group.data[writer.handle] = None
            for writer in self._retired:
                if self.find(writer.segment.first_seq) is writer.segment:
                    # It has no footer, for lack of space, but is still in use.
                    group.paths[writer.path] = None
            group.paths |= dict.fromkeys(self._to_sync)
            for segment in self._just_sealed:
                group.paths[f"{self._place.directory}/{segment.name}"] = None
                group.callbacks.append(partial(self._note_sealed, segment))
            if self._new_names or self._just_sealed:
                group.directories[self._place.directory] = None
                if self._place.priority:
                    group.directories[os.path.dirname(self._place.directory)] = None
            self._just_sealed = []
        group.callbacks += [partial(self._seal_synced, writer) for writer in self._sealed]
        group.callbacks += [writer.close for writer in self._retired]
        for segment in self._dropped:
            # Readers find it there for a while.
            place = self._place
            content = None
            if self.stream is DURABLE:
                content = Content(place.qid, place.priority, segment.last_seq)
            group.file_actions.append(partial(place.trash.put, place.directory, segment.name, place.clock(), content))
        self._new_names = False
        self._sealed, self._retired, self._dropped, self._to_sync = [], [], [], []

    def release(self) -> bool:
        """Close the active segment's file until the next write; return False if that is not possible now."""
        writer = self._writer
        if writer is None or writer.handle < 0:
            return True
        if self._last_tail is not None and not self._last_tail.is_released:
            # The committer may be syncing it.
            return False
        self._last_tail = None
        if self._unsynced and self.stream is DURABLE:
            self._to_sync.append(writer.path)
        self._collected = writer.segment.data_len
        writer.close()
        return True

    def _add_tail(self, group: CommitGroup, writer: SegmentWriter) -> None:
        place, end = self._place, writer.segment.data_len
        tail = Tail(place.qid, place.priority, writer.path, self._collected, end, writer.take_recent())
        group.add_tail(writer.handle, tail)
        self._collected = end
        self._last_tail = tail

    def _seal_synced(self, writer: SegmentWriter) -> None:
        writer.close()
        self._note_sealed(writer.segment)

    def _note_sealed(self, segment: Segment) -> None:
        """Record in the manifest that a segment is sealed and synced."""
        segment.synced = True
        if self.stream is DURABLE and self.find(segment.first_seq) is segment:
            try:
                self._manifest.append([segment.edit(EditOp.SEAL)])
            except OSError:
                # No space: the next start reads the whole segment instead.
                pass

    def close(self) -> None:
        """Close the files."""
        for writer in (*self._sealed, *self._retired, self._writer):
            if writer is not None:
                writer.close()
        self._sealed, self._retired, self._writer = [], [], None
        for reader in self.readers:
            reader.release()

    def _begin(self, seq: int) -> SegmentWriter:
        """Start a segment and seal the previous one."""
        place = self._place
        if place.priority and not self.segments:
            # Created late, as most priorities of a queue are never used.
            place.files.make_directory(place.directory)
        segment = Segment(self.stream, seq)
        writer = SegmentWriter(place, segment)
        try:
            if self.stream is DURABLE:
                self._manifest.append([segment.edit(EditOp.NEW)])
        except OSError:
            writer.close()
            place.files.unlink(writer.path)
            raise
        self.seal_active()
        self._writer = writer
        self._collected = 0
        self._new_names = True
        self.segments.append(segment)
        self._firsts.append(seq)
        return writer

    def _seal(self, writer: SegmentWriter) -> None:
        try:
            writer.seal()
        except OSError:
            # No space for the footer: the index stays in memory, and the manifest does not record it as sealed.
            self._retired.append(writer)
        else:
            writer.segment.index = None
            self._sealed.append(writer)


def bytes_of_part(low: int, high: int, first: int, end: int, body_bytes: int, entries: Sequence[Entry]) -> int:
    """Return the body bytes of a part of some messages: exact if there are entries, otherwise in proportion.

    Args:
        low: Sequence number of the first message of the part.
        high: Sequence number after its last message.
        first: Sequence number of the first message.
        end: Sequence number after the last message.
        body_bytes: Sum of the body lengths of all messages.
        entries: Entries that include the messages; empty if their single lengths are unknown.
    """
    if entries and high - low < end - first:
        return sum([len(entry[1].body) for entry in entries if low <= entry[0] < high])
    return body_bytes * (high - low) // (end - first)
