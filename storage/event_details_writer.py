"""Writes the details of events; see event_details.py."""

from __future__ import annotations

from collections.abc import Iterable

from leveret.storage.disk.files import Files, write_file
from leveret.storage.event_details import PREFIX, SUFFIX, details_name
from leveret.storage.json_records import HEAD, pack_record


def details_files(files: Files, directory: str) -> list[int]:
    """Return the times in the names of all files of details, ascending."""
    times = (name.removeprefix(PREFIX).removesuffix(SUFFIX) for name in files.list_directory(directory))
    return [int(time) for time in times if len(time) == 20 and time.isascii() and time.isdigit()]


class DetailsWriter:
    """Writes the details that belong to one file of the event log after another.

    Args:
        directory: Path of the event log.
        salt: The checksum of the store id.
    """

    __slots__ = ("_directory", "_files", "_handle", "_places", "_salt", "_size")

    def __init__(self, files: Files, directory: str, salt: int) -> None:
        self._files = files
        self._directory = directory
        self._salt = salt
        self._handle = -1
        self._size = 0
        #: Offsets plus 1 of what the file has.
        self._places: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def write(self, details: Iterable[bytes], time: int) -> None:
        """Write what the file does not have yet; what cannot be written has no place.

        Args:
            details: Results of pack_details().
            time: Start time of the file of the event log.
        """
        new = [each for each in dict.fromkeys(details) if each not in self._places]
        octets = b"".join([pack_record(each, self._salt) for each in new])
        try:
            if self._handle < 0:
                self._handle = self._files.open(f"{self._directory}/{details_name(time)}", create=True)
                self._size = self._files.size(f"{self._directory}/{details_name(time)}")
            write_file(self._files, self._handle, octets, self._size)
        except OSError:
            # What is there after a torn write is not known: the next file begins anew.
            self._places.update(dict.fromkeys(new, 0))
            return
        for each in new:
            self._places[each] = self._size + 1
            self._size += HEAD.size + len(each)

    def place(self, details: bytes) -> int:
        """Return the offset plus 1 of details that were written; 0 if they could not be written."""
        return self._places.get(details, 0)

    def close(self) -> None:
        """Close the file; the next one belongs to another file of the event log."""
        if self._handle >= 0:
            self._files.close(self._handle)
        self._handle, self._size = -1, 0
        self._places.clear()
