"""Hard links, and where they cannot be made."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: What the system says where the file system, or the owner of the files, does not allow it.
_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV, errno.EMLINK, errno.ENOTSUP})


class LinkRefusedError(Exception):
    """Hard links cannot be made here."""


@contextmanager
def refusals() -> Iterator[None]:
    """Tell what is refused from other errors.

    Raises:
        LinkRefusedError: What was done inside is not allowed here.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise LinkRefusedError(str(error)) from error
        raise


def link(source: str, target: str) -> str:
    """Make a hard link; return its path.

    Raises:
        FileNotFoundError: The source is gone.
        LinkRefusedError: Hard links cannot be made here.
    """
    with refusals():
        os.link(source, target)
    return target
