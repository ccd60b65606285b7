"""The segments of one stream of a store, one behind the other."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from leveret.storage.commit.group import CommitGroup
from leveret.storage.commit.redo_log import Tail
from leveret.storage.format import Edit, EditOp, Stream
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import Arrival, Segment, StorePlace
from leveret.storage.segments.writer import SegmentWriter


class SegmentChain:
    """Appends to the last segment, begins the next one where it is full, and knows which segment a message is in.

    Args:
        place: Where the files are.
        stream: Which messages it is for.
        manifest: The store's.
        segments: What recovery found, in order; those that it has sealed just now are synced by the first commit group.

    Attributes:
        stream: Which messages it is for.
        segments: All segments, in order.
        has_dead: There may be one for drop_dead().
    """

    __slots__ = (
        "_collected",
        "_dropped",
        "_firsts",
        "_in_flight",
        "_just_sealed",
        "_manifest",
        "_new_names",
        "_place",
        "_retired",
        "_sealed",
        "_to_sync",
        "_unsynced",
        "_writer",
        "has_dead",
        "segments",
        "stream",
    )

    def __init__(self, place: StorePlace, stream: Stream, manifest: Manifest, segments: Sequence[Segment] = ()) -> None:
        self._place = place
        self.stream = stream
        self._manifest = manifest
        self.segments = list(segments)
        self.has_dead = any(segment.live <= 0 for segment in segments)
        self._firsts = [segment.first_seq for segment in segments]
        self._writer: SegmentWriter | None = None
        #: How much of the segment that is written to commit groups have had.
        self._collected = 0
        self._unsynced = False
        self._new_names = False
        #: Commit groups on their way that have the handle of the segment that is written to.
        self._in_flight = 0
        #: Paths of files that were closed before they were synced.
        self._to_sync: list[str] = []
        #: Full segments, to be synced before the manifest may call them sealed.
        self._sealed: list[SegmentWriter] = []
        self._just_sealed = [segment for segment in segments if segment.sealed and not segment.synced]
        #: Files to close, as their segments are gone.
        self._retired: list[SegmentWriter] = []
        #: Segments whose files are to be moved away.
        self._dropped: list[Segment] = []

    def append(self, batch: Sequence[Arrival]) -> None:
        """Write messages.

        Args:
            batch: In the order of their sequence numbers, which are higher than all before.
        Raises:
            OSError: Those up to last_seq were written.
        """
        at = 0
        self._place.descriptors.note_append(self)
        while at < len(batch):
            writer = self._writer
            if writer is None or writer.full:
                writer = self._begin(batch[at][0])
            try:
                at = writer.write(batch, at)
            except FileNotFoundError:
                # Somebody has removed its file. What it held turns out to be lost when it is read.
                self._writer = None
            else:
                self._unsynced = True

    @property
    def last_seq(self) -> int:
        """The highest number in it; 0 if it has none."""
        return self.segments[-1].last_seq if self.segments else 0

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum([segment.size for segment in self.segments])

    @property
    def active(self) -> Segment | None:
        """The segment that is written to."""
        return self._writer.segment if self._writer is not None else None

    def find(self, seq: int) -> Segment | None:
        """Return the segment whose range has a number."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0 or self.segments[at].last_seq < seq:
            return None
        return self.segments[at]

    def overlapping(self, first: int, end: int) -> list[Segment]:
        """Return the segments that may have messages from a number on, `end` not included."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        stop = bisect_right(self._firsts, end - 1)
        return self.segments[at:stop]

    def drop_dead(self, keep_active: bool) -> bool:
        """Give up the segments without a living message.

        Args:
            keep_active: Leave the one that is written to.
        Returns:
            False if there was no room to note it.
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
            # They stay until there is room for this note: a file that is missing has to be explained. Of the spill
            # stream only to who takes a snapshot at this moment.
            if self.stream is Stream.DURABLE:
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
        """Put a segment in the place of others, all of whose living messages it has.

        Args:
            sources: Neighbours, marked busy; they are not any more.
            copy: None if nothing of them lives on.
        Returns:
            False if that was not done: there was no room to note it, or some of them are gone.
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
        if self.stream is Stream.DURABLE:
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
        """What the manifest has to say of segments that go away; readers have to know when."""
        now = self._place.clock()
        return [each.edit(EditOp.DEL)._replace(max_arrived=now) for each in segments]

    def seal_active(self) -> None:
        """Begin the next segment with the next message."""
        if self._writer is not None:
            self._seal(self._writer)
            self._writer = None

    @property
    def has_dropped(self) -> bool:
        """Whether files that are no longer needed take up room until the next commit."""
        return bool(self._dropped)

    def collect(self, group: CommitGroup) -> None:
        """Add written files to a commit group, and moves of dropped files to the trash after it."""
        if self.stream is Stream.DURABLE:
            for writer in self._sealed:
                group.data[writer.handle] = None
            for writer in self._retired:
                if self.find(writer.segment.first_seq) is writer.segment:
                    # It lives on, without a footer, for which there was no room.
                    group.paths[writer.path] = None
            if self._unsynced and self._writer is not None and self._writer.handle >= 0:
                self._add_tail(group, self._writer)
            if self._to_sync:
                group.paths |= dict.fromkeys(self._to_sync)
            for segment in self._just_sealed:
                group.paths[f"{self._place.directory}/{segment.name}"] = None
                group.callbacks.append(partial(self.note_sealed, segment))
            if self._new_names or self._just_sealed:
                group.directories[self._place.directory] = None
                if self._place.priority:
                    group.directories[os.path.dirname(self._place.directory)] = None
            self._just_sealed = []
        for sealed in self._sealed:
            group.callbacks.append(_Synced(self, sealed))
        for retired in self._retired:
            group.callbacks.append(_Close(retired))
        for segment in self._dropped:
            group.file_actions.append(_MoveAway(self._place, segment, self._place.clock()))
        self._unsynced = self._new_names = False
        self._sealed, self._retired, self._dropped, self._to_sync = [], [], [], []

    def release(self) -> bool:
        """Close the file that is written to until there is more to write; return whether it could be done now."""
        writer = self._writer
        if writer is None or writer.handle < 0:
            return True
        if self._in_flight:
            # It may be synced at this very moment.
            return False
        if self._unsynced and self.stream is Stream.DURABLE:
            self._to_sync.append(writer.path)
        self._collected = writer.segment.data_len
        writer.close()
        return True

    def _landed(self) -> None:
        self._in_flight -= 1

    def _add_tail(self, group: CommitGroup, writer: SegmentWriter) -> None:
        place, end = self._place, writer.segment.data_len
        group.add_tail(writer.handle, Tail(place.qid, place.priority, writer.path, self._collected, end))
        self._collected = end
        self._in_flight += 1
        group.callbacks.append(self._landed)

    def note_sealed(self, segment: Segment) -> None:
        """Tell the manifest that a segment is complete and on the disk."""
        segment.synced = True
        if self.stream is Stream.DURABLE and self.find(segment.first_seq) is segment:
            try:
                self._manifest.append([segment.edit(EditOp.SEAL)])
            except OSError:
                # No room: the next start reads the whole segment instead.
                pass

    def close(self) -> None:
        """Close the files; nothing is given up."""
        for writer in (*self._sealed, *self._retired, self._writer):
            if writer is not None:
                writer.close()
        self._sealed, self._retired, self._writer = [], [], None

    def _begin(self, seq: int) -> SegmentWriter:
        """Make the next segment, and seal the one before."""
        place = self._place
        if place.priority and not self.segments:
            # Most priorities of a queue are never used.
            place.files.make_directory(place.directory)
        segment = Segment(self.stream, seq)
        writer = SegmentWriter(place, segment)
        try:
            if self.stream is Stream.DURABLE:
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
        if len(self.segments) > 1 and self.segments[-2].live <= 0:
            # It was kept only as long as it was written to.
            self.has_dead = True
        return writer

    def _seal(self, writer: SegmentWriter) -> None:
        try:
            writer.seal()
        except OSError:
            # No room for the footer: the index stays in memory, and the manifest will not call it sealed.
            self._retired.append(writer)
        else:
            writer.segment.index = None
            self._sealed.append(writer)


class _Close:
    """Closes the file of a segment that is no longer written to."""

    __slots__ = ("_writer",)

    def __init__(self, writer: SegmentWriter) -> None:
        self._writer = writer

    def __call__(self) -> None:
        self._writer.close()


class _Synced:
    """Notes that a sealed segment is on the disk, and closes its file."""

    __slots__ = ("_chain", "_writer")

    def __init__(self, chain: SegmentChain, writer: SegmentWriter) -> None:
        self._chain = chain
        self._writer = writer

    def __call__(self) -> None:
        self._writer.close()
        self._chain.note_sealed(self._writer.segment)


class _MoveAway:
    """Moves the file of a dead segment into the trash, where readers find it for a while."""

    __slots__ = ("_now", "_place", "_segment")

    def __init__(self, place: StorePlace, segment: Segment, now: int) -> None:
        self._place = place
        self._segment = segment
        self._now = now

    def __call__(self) -> None:
        place, segment = self._place, self._segment
        place.trash.put(place.directory, segment.name, self._now)
