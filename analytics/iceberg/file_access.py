"""How pyiceberg reads and writes the files of a table: as the archive does, with the same settings and rights."""

from __future__ import annotations

from typing import Final

import fsspec
from fsspec import AbstractFileSystem
from pyiceberg.io.fsspec import FsspecFileIO

#: The name of the class, for the properties of a catalog.
FILE_ACCESS: Final = f"{__name__}.FileAccess"


class FileAccess(FsspecFileIO):
    """Files on any file system that fsspec knows, set up as fsspec is set up on this machine."""

    def _get_fs(self, scheme: str, hostname: str | None = None) -> AbstractFileSystem:
        # Other stores have no directories to make, or make them anyway.
        options = {"auto_mkdir": True} if scheme in ("", "file") else {}
        return fsspec.filesystem(scheme or "file", **options)
