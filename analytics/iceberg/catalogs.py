"""Catalogs by name or URL, and what is wrong with them in one line."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.arguments import IN_ARCHIVE
from leveret.analytics.errors import ArchiveError
from leveret.analytics.iceberg.archive_catalog import ArchiveCatalog
from leveret.analytics.iceberg.file_access import FILE_ACCESS
from leveret.storage.url_secrets import mask_text, mask_url

_FULL: Final = ("disk is full", "no space left", "quota")
_REFUSED: Final = ("access denied", "accessdenied", "not authorized", "permission denied", "readonly", "read-only")
_AWAY: Final = ("connection", "unable to open database", "timed out", "max retries", "unavailable", "could not connect")


def open_catalog(name: str, files: ArchiveFiles) -> Catalog:
    """Return a catalog.

    Args:
        name: `archive`, a URL, or a name in pyiceberg's configuration.
        files: The archive.
    Raises:
        ArchiveError: There is none of this name, or it cannot be opened.
    """
    if name == IN_ARCHIVE:
        return ArchiveCatalog(files)
    with catalog_errors(name):
        properties = {"uri": name} if "://" in name else {}
        return load_catalog("leveret" if properties else name, **properties, **{"py-io-impl": FILE_ACCESS})


@contextmanager
def catalog_errors(name: str) -> Iterator[None]:
    """Make errors of a catalog in a block those of the archive, which say what to do.

    Raises:
        CommitFailedException, NoSuchTableError, TableAlreadyExistsError: As pyiceberg has raised it.
        ArchiveError: For all other exceptions.
    """
    try:
        yield
    except (ArchiveError, CommitFailedException, NoSuchTableError, TableAlreadyExistsError):
        raise
    except Exception as error:  # Each catalog has exceptions of its own.
        said = mask_text((str(error) or type(error).__name__).strip().splitlines()[0], name)
        what, remedy = _meaning(error, str(error).lower())
        raise ArchiveError(f"the Iceberg catalog {mask_url(name)} {what}: {said}; {remedy}") from error


def _meaning(error: Exception, said: str) -> tuple[str, str]:
    """Return what an error of a catalog is, and what to do."""
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or any(word in said for word in _FULL):
        return "is full", "make room"
    if isinstance(error, ForbiddenError | UnauthorizedError | PermissionError) or any(
        word in said for word in _REFUSED
    ):
        return "refuses the archiver", "give it the right to make tables and to commit"
    if isinstance(error, ConnectionError | TimeoutError) or any(word in said for word in _AWAY):
        return "cannot be reached", "the archive goes on, and the tables follow when it is back"
    return "has an error", "see pyiceberg's documentation on its configuration"
