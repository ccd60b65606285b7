"""Repairs the segment files that were written to until a crash, or are damaged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Final
from zlib import crc32

from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import must_read, replace_file, write_file
from leveret.storage.format import (
    SEGMENT_HEADER_BYTES,
    Edit,
    pack_footer,
    peek_record,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.recovery.store_damage import StoreDamage
from leveret.storage.segments.record_scan import Scan, scan
from leveret.storage.segments.segment import RECORDS_MAX, Segment, StorePlace
from leveret.storage.segments.segment_writer import header_bytes, index_bytes
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
        handle = self._files.open(f"{path}.bad", create=True)
        try:
            self._files.truncate(handle, 0)
            write_file(self._files, handle, tail, 0)
        finally:
            self._files.close(handle)
