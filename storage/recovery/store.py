"""Recovers a store from its files. Damage does not stop it: it repairs, quarantines and counts."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from zlib import crc32

from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import Files, replace_file, write_file
from leveret.storage.disk.trash import NAME as TRASH
from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    Edit,
    EditOp,
    Stream,
    pack_footer,
    peek_record,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.recovery.report import RecoveryReport
from leveret.storage.segments.manifest import NAME as MANIFEST
from leveret.storage.segments.manifest import Manifest, ManifestContents
from leveret.storage.segments.reader import SegmentReader, pread_around
from leveret.storage.segments.scan import Scan, scan
from leveret.storage.segments.segment import (
    RECORDS_MAX,
    Segment,
    StorePlace,
    segment_of_edit,
    segment_of_name,
)
from leveret.storage.segments.writer import header_bytes, index_bytes
from leveret.storage.stores.segment_store import StoreState


def recover_store(
    place: StorePlace,
    manifest: Manifest,
    state: StoreState,
    events: EventLog,
    report: RecoveryReport,
    redo: Mapping[int, bytes],
) -> None:
    """Recover a store.

    Args:
        place: Paths and shared services of the store.
        manifest: Manifest of the store, not read yet.
        state: State from checkpoint and event log: dead messages and the lowest possible next number. The other fields
            are filled in.
        events: Receives events of lost messages.
        report: Receives what was found and repaired.
        redo: Records of the redo log by sequence number, added to segments that lack them.
    Raises:
        DataDirectoryError: The disk is full. Nothing is lost.
    """
    _Recovery(place, manifest, state, events, report, redo).run()


#: Maximum number of padding bytes of a record.
_PADDING_MAX: Final = 7
#: So many damaged places of a file are named.
_PLACES_SHOWN: Final = 5


class _Recovery:
    """The steps of recover_store()."""

    def __init__(
        self,
        place: StorePlace,
        manifest: Manifest,
        state: StoreState,
        events: EventLog,
        report: RecoveryReport,
        redo: Mapping[int, bytes],
    ) -> None:
        self.place = place
        self.files = place.files
        self.manifest = manifest
        self.state = state
        self.events = events
        self.report = report
        self.redo = redo
        #: First sequence numbers of all segments of the durable stream.
        self.firsts: list[int] = []
        #: Segments of whose damaged places the report tells.
        self.told: set[Segment] = set()

    def run(self) -> None:
        state = self.state
        contents = self.manifest.read()
        self.report.damaged_edits += contents.damaged
        if contents.damaged:
            self._note(MANIFEST, f"{contents.damaged} of its edits cannot be read; segments are read instead")
        found = self._segments(contents)
        self._note_missing(contents, found)
        state.segments = self._without_overlaps(found)
        if state.segments:
            state.next_seq = max(state.next_seq, state.segments[-1].last_seq + 1)
        state.next_seq = max(state.next_seq, state.dead.floor)
        at = state.dead.floor
        for segment in state.segments:
            if segment.first_seq > at:
                state.dead.add(at, segment.first_seq - at)
            at = max(at, segment.last_seq + 1)
        if state.next_seq > at:
            state.dead.add(at, state.next_seq - at)
        for segment in state.segments:
            self._attempt(segment.name, partial(self._count, segment))
        self._measure([segment for segment in state.segments if 0 < segment.live < segment.count])
        self.report.messages += state.count
        self.report.body_bytes += state.body_bytes
        if self.manifest.is_long(len(state.segments)):
            edits = [each.edit(_op_of(each)) for each in state.segments]
            self._attempt("MANIFEST", partial(self.manifest.rewrite, edits))

    def _segments(self, contents: ManifestContents) -> list[Segment]:
        """Return all segments with files. Segments without complete metadata in the manifest are read."""
        found: list[Segment] = []
        directory = self.place.directory
        names = self.files.list_directory(directory)
        unfinished = self._unfinished_copies(contents, names)
        named = [segment_of_name(name) for name in names if name not in unfinished]
        self.firsts = sorted([each.first_seq for each in named if each is not None and each.stream is Stream.DURABLE])
        for name in names:
            path = f"{directory}/{name}"
            segment = segment_of_name(name)
            if name == TRASH:
                self.files.remove_tree(path)
            elif name.endswith(".tmp") or name in unfinished or (segment and segment.stream is Stream.SPILL):
                self._attempt(name, partial(self.files.unlink, path))
            elif segment is not None:
                key = segment.stream, segment.first_seq, segment.generation
                edit = contents.segments.get(key)
                if key in contents.deleted:
                    self._attempt(name, partial(self.files.unlink, path))
                elif edit is not None and edit.op != EditOp.NEW and self._size(path) >= edit.file_len:
                    found.append(segment_of_edit(edit))
                else:
                    known = edit if edit is not None and edit.op != EditOp.NEW else None
                    self._attempt(name, partial(self._read, segment, known))
                    if segment.count:
                        found.append(segment)
                        if known is not None:
                            lost = self._lose(segment.last_seq + 1, known.last_seq + 1)
                            self._note(name, "is shorter than it was once", lost, self._uncertain(known))
        return found

    def _unfinished_copies(self, contents: ManifestContents, names: list[str]) -> set[str]:
        """Return the names of compaction copies that are not in the manifest yet; their sources still exist."""
        directory = self.place.directory
        known = sorted(
            (edit.first_seq, edit)
            for key, edit in contents.segments.items()
            if edit.stream == Stream.DURABLE and (name := segment_of_edit(edit).name) in names
            if edit.op == EditOp.NEW or self._size(f"{directory}/{name}") >= edit.file_len
        )
        unfinished: set[str] = set()
        for name in names:
            segment = segment_of_name(name)
            if segment is None or not segment.generation or segment.stream is not Stream.DURABLE:
                continue
            key = segment.stream, segment.first_seq, segment.generation
            at = bisect_right(known, segment.first_seq, key=lambda each: each[0]) - 1
            if key in contents.segments or key in contents.deleted or at < 0:
                continue
            edit = known[at][1]
            if edit.generation < segment.generation and (edit.op == EditOp.NEW or segment.first_seq <= edit.last_seq):
                unfinished.add(name)
        return unfinished

    def _note_missing(self, contents: ManifestContents, found: list[Segment]) -> None:
        """Record the live messages of sealed segments with missing files as lost."""
        there = {(each.stream, each.first_seq, each.generation) for each in found}
        copies = [each for each in found if each.generation]
        for key, edit in contents.segments.items():
            if edit.op != EditOp.NEW and key not in there:
                if any(
                    each.generation > edit.generation
                    and each.first_seq <= edit.last_seq
                    and each.last_seq >= edit.first_seq
                    for each in copies
                ):
                    # It was compacted, but that edit is damaged. Messages missing in the copy were dead.
                    continue
                lost = min(self._lose(edit.first_seq, edit.last_seq + 1), edit.records)
                self.report.missing_segments += bool(lost)
                what = "is missing or holds no whole record"
                self._note(segment_of_edit(edit).name, what, lost, self._uncertain(edit))

    def _without_overlaps(self, found: list[Segment]) -> list[Segment]:
        """Return the segments in order; of two with the same messages, the one of the higher generation."""
        kept: list[Segment] = []
        for segment in sorted(found, key=lambda each: (each.first_seq, each.generation)):
            if kept and kept[-1].last_seq >= segment.first_seq:
                older = kept.pop() if segment.generation > kept[-1].generation else segment
                path = f"{self.place.directory}/{older.name}"
                self._attempt(older.name, partial(self.files.rename, path, f"{path}.bad"))
                self._note(older.name, "holds what another segment holds; set aside as .bad")
                if older is segment:
                    continue
            kept.append(segment)
        return kept

    def _read(self, segment: Segment, known: Edit | None) -> None:
        """Read an unsealed segment, truncate it after its last valid record, and seal it.

        Args:
            segment: The segment.
            known: Its last edit in the manifest if it was sealed and is damaged.
        """
        path = f"{self.place.directory}/{segment.name}"
        size = self.files.size(path)
        handle = self.files.open(path)
        try:
            octets, whole = self._contents(handle, size)
            found = scan(octets, self.place.salt, segment.first_seq)
            missing = self._missing(segment, found) if whole else None
            if missing:
                completed = self._complete(segment, path, octets, found, missing)
                self.files.close(handle)
                handle = completed
                octets, whole = self._contents(handle, self.files.size(path))
                found = scan(octets, self.place.salt, segment.first_seq)
            for header, offset in zip(found.headers, found.offsets, strict=True):
                segment.data_len = offset
                segment.note(header.seq, header.arrived, header.expires, header.body_len, header.rec_len)
            # An empty file is not damage: the process ended before its first write.
            if octets and unpack_segment_header(octets) is None:
                self._note(segment.name, "its head is damaged; its records are read all the same")
            self._note_spans(segment, found.damaged, found.places, known)
            if not whole:
                # The file is left unchanged: a later attempt may read more.
                self.report.failures.append(f"{path}: the disk cannot read all of it")
            elif segment.count or any(octets[found.end :]):
                self._seal(segment, path, handle, octets, found.end)
        finally:
            self.files.close(handle)
        if not segment.count and whole:
            self.files.unlink(path)

    def _missing(self, segment: Segment, found: Scan) -> dict[int, bytes]:
        """Return live records of the redo log that belong to a segment but are not in it."""
        if not self.redo:
            return {}
        end = next((first for first in self.firsts if first > segment.first_seq), 1 << 64)
        there = {header.seq for header in found.headers}
        dead = self.state.dead
        return {
            seq: record
            for seq, record in self.redo.items()
            if segment.first_seq <= seq < end and seq not in there and seq not in dead
        }

    def _complete(self, segment: Segment, path: str, octets: bytes, found: Scan, missing: Mapping[int, bytes]) -> int:
        """Add missing records to a segment; return a new handle of its file."""
        records = dict(missing)
        for header, offset in zip(found.headers, found.offsets, strict=True):
            records[header.seq] = octets[offset : offset + header.rec_len]
        head = octets[:SEGMENT_HEADER_BYTES]
        if unpack_segment_header(head) is None:
            head = header_bytes(self.place, segment, self.place.clock())
        whole = head + b"".join([records[seq] for seq in sorted(records)])
        try:
            replace_file(self.files, self.place.directory, segment.name, whole)
        except OSError as error:
            # Continuing would lose messages that are in the redo log.
            raise DataDirectoryError(
                f"{path} cannot be completed from the redo log: {error}; {len(whole)} free bytes are needed for it"
            ) from error
        return self.files.open(path)

    def _contents(self, handle: int, size: int) -> tuple[bytes, bool]:
        """Return the contents of a file, and whether all of it could be read."""
        try:
            return self.files.pread(handle, size, 0), True
        except OSError:
            return pread_around(self.files, handle, size, 0), False

    def _seal(self, segment: Segment, path: str, handle: int, octets: bytes, end: int) -> None:
        index = segment.index
        assert index is not None
        footer = pack_footer(segment.footer(crc32(octets[:end])), index_bytes(index))
        tail = octets[end:]
        if tail != footer:
            self._set_aside(segment, path, tail)
            if not segment.count:
                return
            self.files.truncate(handle, end)
            write_file(self.files, handle, footer, end)
        # The manifest is updated after the first commit group has synced the segment.
        segment.sealed = True
        segment.index = None

    def _set_aside(self, segment: Segment, path: str, tail: bytes) -> None:
        """Save what follows the last whole record, and give up those records of it that were complete once.

        Records that end in zeros were being written when power went: the file had got its length, not yet its bytes.
        """
        if not any(tail):
            return
        last = unfinished = segment.last_seq
        at, written = 0, len(tail.rstrip(b"\0"))
        while (header := peek_record(tail, at)) is not None and at + header.rec_len <= len(tail):
            at += header.rec_len
            if unfinished < header.seq <= unfinished + RECORDS_MAX:
                unfinished = header.seq
                if at - written <= _PADDING_MAX:
                    last = header.seq
        footer = unpack_footer(tail)
        if footer is not None:
            last = max(last, footer[0].last_seq)
        lost = self._lose(segment.last_seq + 1, last + 1)
        never = 0
        if unfinished > last:
            never = self.state.dead.count_live(last + 1, unfinished + 1)
            self.state.dead.add(last + 1, unfinished - last)
            self.report.unfinished_messages += never
        self.state.next_seq = max(self.state.next_seq, last + 1, unfinished + 1)
        self.report.damaged_spans += last > segment.last_seq
        self.report.cut_bytes += len(tail)
        what = f"{len(tail)} bytes behind its last whole record, saved to {segment.name}.bad"
        if never:
            what += f"; a write that was cut short before it was synced: the bytes of {never} messages are not there"
        elif not lost:
            what += "; a write that was cut short, as far as one can tell"
        self._note(segment.name, what, lost, self._uncertain(None))
        handle = self.files.open(f"{path}.bad", create=True)
        try:
            self.files.truncate(handle, 0)
            write_file(self.files, handle, tail, 0)
        finally:
            self.files.close(handle)

    def _count(self, segment: Segment) -> None:
        """Count live messages."""
        dead = self.state.dead
        live = dead.count_live(segment.first_seq, segment.last_seq + 1)
        explained = segment.gapless or (segment.settled and live <= segment.count and not self.report.lacks_events)
        if live and not explained:
            segment.settled = False
            self._note_gaps(segment)
            live = dead.count_live(segment.first_seq, segment.last_seq + 1)
        segment.set_live(live)
        self.state.count += live

    def _measure(self, sparse: Sequence[Segment]) -> None:
        """Determine the body bytes of live messages: known from the checkpoint, or measured from record headers.

        Args:
            sparse: Segments with both live and dead messages.
        """
        state = self.state
        if sparse and (state.told is None or state.told[0] != state.count):
            reader = SegmentReader(self.place)
            for segment in sparse:
                try:
                    segment.live_bytes = reader.live_bytes(segment, state.dead)
                except OSError as error:
                    self.report.failures.append(f"{self.place.directory}/{segment.name}: {error}")
            reader.release()
            state.told = None
        state.body_bytes = sum(segment.live_bytes for segment in state.segments)
        if sparse and state.told is not None:
            # The distribution over segments is an estimate, but the total is exact.
            state.body_bytes = state.told[1]

    def _note_gaps(self, segment: Segment) -> None:
        """Mark numbers without a record in a segment dead: they were transient or never written."""
        path = f"{self.place.directory}/{segment.name}"
        handle = self.files.open(path)
        try:
            octets, _ = self._contents(handle, segment.data_len)
        finally:
            self.files.close(handle)
        found = scan(octets, self.place.salt, segment.first_seq)
        damaged, places = [*found.damaged], [*found.places]
        if found.end < segment.data_len:
            damaged.append((found.headers[-1].seq if found.headers else segment.first_seq - 1, segment.last_seq + 1))
            places.append((found.end, segment.data_len))
        self._note_spans(segment, damaged, places, segment.edit(_op_of(segment)))
        at = segment.first_seq
        for header in found.headers:
            if header.seq > at:
                self.state.dead.add(at, header.seq - at)
            at = header.seq + 1
        if at <= segment.last_seq:
            self.state.dead.add(at, segment.last_seq + 1 - at)

    def _note_spans(
        self, segment: Segment, damaged: list[tuple[int, int]], places: list[tuple[int, int]], known: Edit | None
    ) -> None:
        """Give up what was in places that hold no whole record.

        Args:
            segment: Which one.
            damaged: The numbers before and behind each place.
            places: Where they begin and end.
            known: What the manifest says of the segment if it was sealed.
        """
        lost = 0
        for (before, behind), (start, end) in zip(damaged, places, strict=True):
            # A record has a head at least. Which of the numbers had records cannot be told where some have none.
            lost += min(self._lose(before + 1, behind), (end - start) // RECORD_BYTES)
        if damaged and segment not in self.told:
            # It may be read twice: to be sealed, and to be counted.
            self.told.add(segment)
            self.report.damaged_spans += len(damaged)
            shown = [f"{start} to {end}" for start, end in places[:_PLACES_SHOWN]]
            more = f" and {len(places) - len(shown)} more places" if len(places) > len(shown) else ""
            what = f"bytes {', '.join(shown)}{more} hold no whole record"
            self._note(segment.name, what, lost, self._uncertain(known))

    def _uncertain(self, known: Edit | None) -> str:
        """Why fewer messages of a segment may be lost than there are numbers for which nothing else is known.

        Args:
            known: What the manifest says of it; None if it was written to until the end.
        """
        reasons: list[str] = []
        if known is None:
            reasons.append("it was written to until the end, and not all need have been confirmed")
        elif known.op != EditOp.COMPACTED and known.last_seq - known.first_seq + 1 != known.records:
            reasons.append("some of their numbers may have been those of transient messages")
        if self.report.lacks_events:
            reasons.append("some may have been acknowledged, as events are missing")
        return "; ".join(reasons)

    def _note(self, name: str, what: str, lost_messages: int = 0, uncertain: str = "") -> None:
        self.report.note(f"{self.place.directory}/{name}", what, lost_messages, uncertain if lost_messages else "")

    def _lose(self, first: int, end: int) -> int:
        """Record the live messages in a range as lost; return their maximum number."""
        lost = 0
        for start, stop in [*self.state.dead.live_runs(first, end)]:
            self.events.add(self.place.qid, self.place.priority, start, stop - start, EventKind.LOST, 0, 0, 0)
            self.state.dead.add(start, stop - start)
            lost += stop - start
        return lost

    def _size(self, path: str) -> int:
        try:
            return self.files.size(path)
        except OSError:
            return 0

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self.report.failures.append(f"{self.place.directory}/{name}: {error}")


def _op_of(segment: Segment) -> EditOp:
    """Return the kind of manifest edit for a segment."""
    if not segment.synced:
        return EditOp.NEW
    return EditOp.COMPACTED if segment.settled else EditOp.SEAL


def salt_of_segments(files: Files, directories: Iterable[str]) -> int:
    """Return the salt of a queue with a damaged QUEUE.json from the segments of its stores; 0 if there are none."""
    paths = [f"{directory}/{name}" for directory in directories for name in files.list_directory(directory)]
    for path in paths:
        if segment_of_name(os.path.basename(path)) is not None:
            try:
                handle = files.open(path)
                try:
                    header = unpack_segment_header(files.pread(handle, SEGMENT_HEADER_BYTES, 0))
                finally:
                    files.close(handle)
            except OSError:
                continue
            if header is not None:
                return header.salt
    return 0
