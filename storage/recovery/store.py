"""Recovers a store from its files. Damage does not stop it: it repairs, quarantines and counts."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final
from zlib import crc32

from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import Files, must_read, replace_file, write_draft, write_file
from leveret.storage.disk.trash import NAME as TRASH
from leveret.storage.disk.trash import Content
from leveret.storage.event_log import EventLog
from leveret.storage.format import (
    SEGMENT_HEADER_BYTES,
    Edit,
    EditOp,
    Scan,
    Stream,
    pack_footer,
    peek_record,
    scan,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.recovery.recovery_report import RecoveryReport, StoreDamage
from leveret.storage.segments.manifest import NAME as MANIFEST
from leveret.storage.segments.manifest import Manifest, ManifestContents
from leveret.storage.segments.reader import SegmentReader
from leveret.storage.segments.segment import (
    RECORDS_MAX,
    Segment,
    StorePlace,
    header_bytes,
    index_bytes,
    segment_of_edit,
    segment_of_name,
)
from leveret.storage.stores.segment_store import StoreState

#: Maximum number of padding bytes of a record.
_PADDING_MAX: Final = 7


class SegmentRepair:
    """Reads segment files record by record, and seals them after the last valid record.

    Args:
        state: Its state; numbers without a record become dead.
        damage: Receives what was found and repaired.
        redo: Records of the redo log by sequence number, added to segments that lack them.
    """

    def __init__(self, place: StorePlace, state: StoreState, damage: StoreDamage, redo: Mapping[int, bytes]) -> None:
        self._place = place
        self._files = place.files
        self._state = state
        self._damage = damage
        self._redo = redo

    def seal(self, segment: Segment, end: int, known: Edit | None) -> None:
        """Read an unsealed segment, truncate it after its last valid record, and seal it.

        Args:
            segment: The segment.
            end: The first sequence number of the next segment.
            known: Its last edit in the manifest if it was sealed and is damaged.
        """
        path = f"{self._place.directory}/{segment.name}"
        handle = self._open(path)
        try:
            octets = self._contents(path, handle)
            found = scan(octets, self._place.salt, segment.first_seq)
            missing = self._missing(segment, end, found)
            if missing:
                completed = self._complete(segment, path, octets, found, missing)
                self._files.close(handle)
                handle = completed
                self._note_unrestored(segment, octets, found, missing)
                octets = self._contents(path, handle)
                found = scan(octets, self._place.salt, segment.first_seq)
            else:
                self._write_again(path, octets, found)
            for header, offset in zip(found.headers, found.offsets, strict=True):
                segment.data_len = offset
                segment.note(header.seq, header.arrived, header.expires, header.body_len, header.rec_len)
            # An empty file is not damage: the process ended before its first write.
            if octets and unpack_segment_header(octets) is None:
                self._damage.note(segment.name, "its head is damaged; its records are read nevertheless")
            self._damage.note_spans(segment, found.damaged, found.places, known)
            if not segment.count and known is None:
                self._note_cut(segment, octets, end)
            if segment.count or any(octets[found.end :]):
                self._seal(segment, path, handle, octets, found.end)
        finally:
            self._files.close(handle)
        if not segment.count:
            self._files.unlink(path)

    def _note_cut(self, segment: Segment, octets: bytes, end: int) -> None:
        """Report a segment without a record that had some: its head is written with the first one."""
        lost = self._damage.lose(segment.first_seq, min(end, self._state.next_seq))
        is_head = unpack_segment_header(octets) is not None and not any(octets[SEGMENT_HEADER_BYTES:])
        if lost or is_head:
            what = "ends before its first record: it was cut, or its first write was cut short"
            self._damage.note(segment.name, what, lost, self._damage.uncertainty(None))

    def mark_gaps_dead(self, segment: Segment) -> None:
        """Mark numbers without a record in a segment dead: they were transient or never written."""
        path = f"{self._place.directory}/{segment.name}"
        handle = self._open(path)
        try:
            octets = self._contents(path, handle)[: segment.data_len]
        finally:
            self._files.close(handle)
        found = scan(octets, self._place.salt, segment.first_seq)
        damaged, places = [*found.damaged], [*found.places]
        if found.end < segment.data_len:
            damaged.append((found.headers[-1].seq if found.headers else segment.first_seq - 1, segment.last_seq + 1))
            places.append((found.end, segment.data_len))
        self._damage.note_spans(segment, damaged, places, segment.edit(segment.op))
        at = segment.first_seq
        for header in found.headers:
            if header.seq > at:
                self._state.dead.add(at, header.seq - at)
            at = header.seq + 1
        if at <= segment.last_seq:
            self._state.dead.add(at, segment.last_seq + 1 - at)

    def _missing(self, segment: Segment, end: int, found: Scan) -> dict[int, bytes]:
        """Return live records of the redo log that belong to a segment but are not in it."""
        if not self._redo:
            return {}
        there = {header.seq for header in found.headers}
        dead = self._state.dead
        return {
            seq: record
            for seq, record in self._redo.items()
            if segment.first_seq <= seq < end and seq not in there and seq not in dead
        }

    def _complete(self, segment: Segment, path: str, octets: bytes, found: Scan, missing: Mapping[int, bytes]) -> int:
        """Add missing records to a segment; return a new handle of its file."""
        records = dict(missing)
        for header, offset in zip(found.headers, found.offsets, strict=True):
            records[header.seq] = octets[offset : offset + header.rec_len]
        head = octets[:SEGMENT_HEADER_BYTES]
        if unpack_segment_header(head) is None:
            head = header_bytes(self._place, segment, self._place.clock())
        whole = head + b"".join([records[seq] for seq in sorted(records)])
        try:
            replace_file(self._files, self._place.directory, segment.name, whole)
        except OSError as error:
            # Continuing would lose messages that are in the redo log.
            raise DataDirectoryError(
                f"{path} cannot be completed from the redo log: {error}; {len(whole)} free bytes are needed for it"
            ) from error
        return self._files.open(path)

    def _write_again(self, path: str, octets: bytes, found: Scan) -> None:
        """Write the end of a segment that the redo log has too once more, so that the next sync writes it.

        If a sync of it has failed since the machine started, the kernel may show what is not on the disk, and may not
        write it with a later sync.
        """
        starts = [
            offset for header, offset in zip(found.headers, found.offsets, strict=True) if header.seq in self._redo
        ]
        if starts:
            # The head is written with the first record.
            start = starts[0] if starts[0] > SEGMENT_HEADER_BYTES else 0
            try:
                self._files.overwrite(path, octets[start:], start)
            except OSError as error:
                # Continuing would remove the redo log, the only file that certainly has the messages.
                raise DataDirectoryError(f"{path} cannot be written again: {error}; nothing is lost") from error

    def _note_unrestored(self, segment: Segment, octets: bytes, found: Scan, missing: Mapping[int, bytes]) -> None:
        """Report what was in damaged places of a segment, or behind its end, and is not in the redo log either."""
        damage = self._damage
        for (before, after), (start, end) in zip(found.damaged, found.places, strict=True):
            there = [before, *sorted([seq for seq in missing if before < seq < after]), after]
            lost = sum([damage.lose(one + 1, other) for one, other in pairwise(there)])
            if lost:
                damage.report.damaged_spans += 1
                what = f"bytes {start} to {end} hold no whole record, and the redo log does not have all that was there"
                damage.note(segment.name, what, lost, damage.uncertainty(None))
        last = found.headers[-1].seq if found.headers else segment.first_seq - 1
        added = sorted([seq for seq in missing if seq > last])
        gaps = sum([self._state.dead.count_live(one + 1, other) for one, other in pairwise([last, *added])])
        if gaps:
            what = (
                f"the redo log had {len(added)} messages that it lacked at its end; {gaps} numbers among them have no"
                " message: they were those of transient messages, or the file was cut after it had been synced"
            )
            damage.note(segment.name, what)

    def _open(self, path: str) -> int:
        """Open a file.

        Raises:
            UnreadableFileError: It cannot be opened.
        """
        return must_read(path, partial(self._files.open, path))

    def _contents(self, path: str, handle: int) -> bytes:
        """Return the contents of an open file.

        Raises:
            UnreadableFileError: They cannot be read.
        """
        return must_read(path, lambda: self._files.pread(handle, self._files.size(path), 0))

    def _seal(self, segment: Segment, path: str, handle: int, octets: bytes, end: int) -> None:
        index = segment.index
        assert index is not None
        footer = pack_footer(segment.footer(crc32(octets[:end])), index_bytes(index))
        tail = octets[end:]
        if tail != footer:
            self._set_aside(segment, path, tail)
            if not segment.count:
                return
            self._files.truncate(handle, end)
            write_file(self._files, handle, footer, end)
        # The manifest is updated after the first commit group has synced the segment.
        segment.sealed = True
        segment.index = None

    def _set_aside(self, segment: Segment, path: str, tail: bytes) -> None:
        """Save what follows the last whole record; the messages that were complete there once are lost.

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
        lost = self._damage.lose(segment.last_seq + 1, last + 1)
        never = 0
        if unfinished > last:
            never = self._state.dead.count_live(last + 1, unfinished + 1)
            self._state.dead.add(last + 1, unfinished - last)
            self._damage.report.unfinished_messages += never
        self._state.next_seq = max(self._state.next_seq, last + 1, unfinished + 1)
        self._damage.report.damaged_spans += last > segment.last_seq
        self._damage.report.cut_bytes += len(tail)
        what = f"{len(tail)} bytes behind its last whole record, saved to {segment.name}.bad"
        if never:
            what += f"; a write that was cut short before it was synced: the bytes of {never} messages are not there"
        elif not lost:
            what += "; a write that was cut short, as far as one can tell"
        self._damage.note(segment.name, what, lost, self._damage.uncertainty(None))
        write_draft(self._files, f"{path}.bad", tail)


#: Higher than all sequence numbers.
_NO_SEQ: Final = 1 << 64


def recover_store(
    place: StorePlace,
    manifest: Manifest,
    state: StoreState,
    events: EventLog,
    report: RecoveryReport,
    redo: Mapping[int, bytes],
    is_whole: bool = False,
) -> None:
    """Recover a store.

    Args:
        manifest: Manifest of the store, not read yet.
        state: State from checkpoint and event log: dead messages and the lowest possible next number. The other fields
            are filled in.
        events: Receives events of lost messages.
        report: Receives what was found and repaired.
        redo: Records of the redo log by sequence number, added to segments that lack them.
        is_whole: Whether all messages are written, transient ones too, so that those in no file are lost.
    Raises:
        DataDirectoryError: The disk is full. Nothing is lost.
    """
    _Recovery(place, manifest, state, StoreDamage(place, state, events, report), redo, is_whole).run()


class _Recovery:
    """The steps of recover_store()."""

    def __init__(
        self,
        place: StorePlace,
        manifest: Manifest,
        state: StoreState,
        damage: StoreDamage,
        redo: Mapping[int, bytes],
        is_whole: bool,
    ) -> None:
        self._place = place
        self._files = place.files
        self._manifest = manifest
        self._state = state
        self._damage = damage
        self._report = damage.report
        self._is_whole = is_whole
        self._repair = SegmentRepair(place, state, damage, redo)

    def run(self) -> None:
        """Find, repair and count the segments."""
        state = self._state
        contents = self._manifest.read()
        if contents.damaged:
            self._damage.note(MANIFEST, f"{contents.damaged} of its edits cannot be read; segments are read instead")
        names = set(self._files.list_directory(self._place.directory))
        known = state.next_seq
        found = self._segments(contents)
        self._note_missing(contents, found)
        self._forget_unsealed(contents, found, names)
        state.segments = self._without_overlaps(found)
        if state.segments:
            state.next_seq = max(state.next_seq, state.segments[-1].last_seq + 1)
        state.next_seq = max(state.next_seq, state.dead.floor)
        if self._is_whole and not state.segments and not names & {MANIFEST, f"{MANIFEST}.bad"}:
            lost = self._damage.lose(state.dead.floor, known)
            if lost:
                uncertain = self._damage.uncertainty(None)
                self._damage.note(MANIFEST, "is missing, and there are no segments beside it", lost, uncertain)
        self._mark_missing_dead()
        for segment in state.segments:
            self._damage.attempt(segment.name, partial(self._count, segment))
        self._measure([segment for segment in state.segments if 0 < segment.live < segment.count])
        self._damage.attempt(TRASH, partial(self._empty_trash, _firsts_of(names | {each.name for each in found})))
        self._report.messages += state.count
        self._report.body_bytes += state.body_bytes
        if self._manifest.is_long(len(state.segments)):
            edits = [each.edit(each.op) for each in state.segments]
            self._damage.attempt("MANIFEST", partial(self._manifest.rewrite, edits))

    def _segments(self, contents: ManifestContents) -> list[Segment]:
        """Return all segments with files. Segments without complete metadata in the manifest are read."""
        found: list[Segment] = []
        directory = self._place.directory
        names = self._files.list_directory(directory)
        known = [segment_of_edit(edit).name for edit in contents.segments.values()]
        self._state.lacks_files = not set(known).issubset(names)
        unfinished = self._unfinished_copies(contents, names)
        firsts = _firsts_of(name for name in names if name not in unfinished)
        for name in names:
            path = f"{directory}/{name}"
            segment = segment_of_name(name)
            if name == TRASH:
                # What named readers need of it is found at the end.
                continue
            if name.endswith(".tmp") or name in unfinished or (segment and segment.stream is Stream.SPILL):
                self._damage.attempt(name, partial(self._files.unlink, path))
            elif segment is not None:
                key = segment.stream, segment.first_seq, segment.generation
                edit = contents.segments.get(key)
                # A damaged edit may have said that another segment of the same name has begun since.
                if key in contents.deleted and not contents.damaged:
                    self._damage.attempt(name, partial(self._drop, name))
                elif edit is not None and edit.op != EditOp.NEW and self._size(path) >= edit.file_len:
                    found.append(segment_of_edit(edit))
                else:
                    at = bisect_right(firsts, segment.first_seq)
                    end = firsts[at] if at < len(firsts) else _NO_SEQ
                    self._seal(segment, end, edit if edit is not None and edit.op != EditOp.NEW else None)
                    if segment.count:
                        found.append(segment)
        return found

    def _drop(self, name: str) -> None:
        """Move a segment to the trash that was dropped just before the process ended."""
        directory = self._place.directory
        self._files.make_directory(f"{directory}/{TRASH}")
        self._files.rename(f"{directory}/{name}", f"{directory}/{TRASH}/{name}")

    def _empty_trash(self, firsts: Sequence[int]) -> None:
        """Remove the dropped segments that no named reader needs."""
        place, path = self._place, f"{self._place.directory}/{TRASH}"
        names = self._files.list_directory(path)
        following = sorted({*firsts, *_firsts_of(names)})
        left = False
        for name in names:
            segment = segment_of_name(name)
            content = None
            if segment is not None and segment.stream is Stream.DURABLE:
                at = bisect_right(following, segment.first_seq)
                # At most: it may have no footer.
                end = following[at] if at < len(following) else max(self._state.next_seq, segment.first_seq + 1)
                content = Content(place.qid, place.priority, end - 1)
            if place.trash.adopt(place.directory, name, place.clock(), content):
                left = True
            else:
                self._files.unlink(f"{path}/{name}")
        if names and not left:
            self._files.remove_tree(path)

    def _seal(self, segment: Segment, end: int, known: Edit | None) -> None:
        """Repair and seal a segment."""
        name = segment.name
        self._damage.attempt(name, partial(self._repair.seal, segment, end, known))
        if segment.count and known is not None:
            lost = self._damage.lose(segment.last_seq + 1, known.last_seq + 1)
            self._damage.note(name, "is shorter than it was once", lost, self._damage.uncertainty(known))

    def _mark_missing_dead(self) -> None:
        """Mark numbers dead that are in no segment."""
        state = self._state
        at = state.dead.floor
        for segment in state.segments:
            if segment.first_seq > at:
                state.dead.add(at, segment.first_seq - at)
            at = max(at, segment.last_seq + 1)
        if state.next_seq > at:
            state.dead.add(at, state.next_seq - at)

    def _unfinished_copies(self, contents: ManifestContents, names: list[str]) -> set[str]:
        """Return the names of compaction copies that are not in the manifest yet; their sources still exist."""
        directory = self._place.directory
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
                lost = min(self._damage.lose(edit.first_seq, edit.last_seq + 1), edit.records)
                self._report.missing_segments += bool(lost)
                what = "is missing or holds no whole record"
                self._damage.note(segment_of_edit(edit).name, what, lost, self._damage.uncertainty(edit))

    def _forget_unsealed(self, contents: ManifestContents, found: list[Segment], names: set[str]) -> None:
        """Delete segments from the manifest that were being written to and have no messages; report missing files."""
        there = {(each.stream, each.first_seq, each.generation) for each in found}
        gone = [
            segment_of_edit(edit)
            for key, edit in contents.segments.items()
            if edit.op == EditOp.NEW and edit.stream == Stream.DURABLE and key not in there
        ]
        for name in [segment.name for segment in gone if segment.name not in names]:
            self._damage.note(name, "was being written to, and is missing: if it had messages, they are lost")
        now = self._place.clock()
        edits = [segment.edit(EditOp.DEL)._replace(max_arrived=now) for segment in gone]
        if edits:
            self._damage.attempt(MANIFEST, partial(self._manifest.append, edits))

    def _without_overlaps(self, found: list[Segment]) -> list[Segment]:
        """Return the segments in order; of two with the same messages, the one of the higher generation."""
        kept: list[Segment] = []
        for segment in sorted(found, key=lambda each: (each.first_seq, each.generation)):
            if kept and kept[-1].last_seq >= segment.first_seq:
                older = kept.pop() if segment.generation > kept[-1].generation else segment
                path = f"{self._place.directory}/{older.name}"
                self._damage.attempt(older.name, partial(self._files.rename, path, f"{path}.bad"))
                self._damage.note(older.name, "holds what another segment holds; set aside as .bad")
                if older is segment:
                    continue
            kept.append(segment)
        return kept

    def _count(self, segment: Segment) -> None:
        """Count live messages."""
        dead = self._state.dead
        live = dead.count_live(segment.first_seq, segment.last_seq + 1)
        explained = segment.gapless or (segment.settled and live <= segment.count and not self._report.lacks_events)
        if live and not explained:
            segment.settled = False
            self._repair.mark_gaps_dead(segment)
            live = dead.count_live(segment.first_seq, segment.last_seq + 1)
        segment.set_live(live)
        self._state.count += live

    def _measure(self, sparse: Sequence[Segment]) -> None:
        """Determine the body bytes of live messages: known from the checkpoint, or measured from record headers."""
        state = self._state
        if sparse and (state.told is None or state.told[0] != state.count):
            reader = SegmentReader(self._place)
            for segment in sparse:
                try:
                    segment.live_bytes = reader.live_bytes(segment, state.dead)
                except OSError as error:
                    self._report.failures.append(f"{self._place.directory}/{segment.name}: {error}")
            reader.release()
            state.told = None
        state.body_bytes = sum(segment.live_bytes for segment in state.segments)
        if sparse and state.told is not None:
            # The distribution over segments is an estimate, but the total is exact.
            state.body_bytes = state.told[1]

    def _size(self, path: str) -> int:
        try:
            return self._files.size(path)
        except OSError:
            return 0


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


def _firsts_of(names: Iterable[str]) -> list[int]:
    """Return the first numbers of the durable segments among some files, ascending."""
    found = (segment_of_name(name) for name in names)
    return sorted({each.first_seq for each in found if each is not None and each.stream is Stream.DURABLE})
