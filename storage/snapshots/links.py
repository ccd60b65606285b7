"""Hard links, with a separate error if they are not supported."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Errors if the file system or its permissions do not allow hard links.
_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV, errno.EMLINK, errno.ENOTSUP})


class LinkRefusedError(Exception):
    """Hard links are not possible here."""


@contextmanager
def link_errors() -> Iterator[None]:
    """Convert errors of refused operations to LinkRefusedError.

    Raises:
        LinkRefusedError: The operation in the block is not allowed here.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise LinkRefusedError(str(error)) from error
        raise


def link(source: str, target: str) -> str:
    """Create a hard link; return its path.

    Raises:
        FileNotFoundError: The source does not exist.
        LinkRefusedError: Hard links are not possible here.
    """
    with link_errors():
        os.link(source, target)
    return target
