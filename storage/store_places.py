"""Creates the StorePlace of each store."""

from __future__ import annotations

from collections.abc import Callable

from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.disk.descriptors import Descriptors
from leveret.storage.disk.files import Files
from leveret.storage.disk.trash import Trash
from leveret.storage.segments.segment import StorePlace


class StorePlaces:
    """Factory of StorePlace objects, which hold a store's paths and shared services.

    Args:
        files: The file system interface.
        directory: The data directory.
        clock: Microseconds since 1970.
        trash: Receives dropped segments.
        segment_bytes: Size in bytes at which a segment is sealed.
        descriptors: Limits open files.
    """

    __slots__ = ("_clock", "_descriptors", "_directory", "_files", "_segment_bytes", "_trash")

    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        clock: Callable[[], int],
        trash: Trash,
        segment_bytes: int,
        descriptors: Descriptors,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._trash = trash
        self._segment_bytes = segment_bytes
        self._descriptors = descriptors

    def of(self, qid: int, priority: int, salt: int) -> StorePlace:
        """Return the place of one store.

        Args:
            qid: Number of the queue.
            priority: Priority, 0..255.
            salt: Checksum salt of the queue.
        """
        path, store_id = self._directory.store_path(qid, priority), self._directory.store_id
        return StorePlace(
            self._files,
            path,
            qid,
            priority,
            salt,
            store_id,
            self._clock,
            self._trash,
            self._segment_bytes,
            self._descriptors,
        )
