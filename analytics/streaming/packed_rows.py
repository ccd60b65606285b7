"""Rows of integers as a short text, for offsets that say something about thousands of queues.

The text is Base64 of zlib of: the format, a byte; the number of columns, a byte; then the values, column by column, as
little-endian 64-bit integers of which first come all lowest bytes, then all second ones, and so on. Of the first column
there are the differences to the row before. So bytes that are always 0, and numbers without gaps, take next to nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final
from zlib import compress, decompress, error

import numpy as np

from leveret.analytics.errors import AnalyticsError

_FORMAT: Final = 1
_NUMBER_BYTES: Final = 8
#: Bytes of format and number of columns.
_HEAD_BYTES: Final = 2


def pack_rows(rows: Sequence[Sequence[int]]) -> str:
    """Return rows as a text.

    Args:
        rows: At least one, all of the same length; integers from 0 to below 2^63, the first ones ascending.
    """
    columns = np.ascontiguousarray(np.array(rows, np.uint64).T, "<u8")
    columns[0, 1:] -= columns[0, :-1].copy()
    planes = columns.view(np.uint8).reshape(*columns.shape, _NUMBER_BYTES).transpose(0, 2, 1)
    return b64encode(compress(bytes([_FORMAT, len(columns)]) + planes.tobytes(), 9)).decode()


def unpack_rows(text: str, columns: int) -> list[list[int]]:
    """Return the rows of a text.

    Args:
        text: Result of pack_rows().
        columns: Expected number of columns.
    Raises:
        AnalyticsError: It is damaged, or a newer version has written it.
    """
    try:
        octets = decompress(b64decode(text, validate=True))
    except (ValueError, error):
        octets = b""
    if octets and octets[0] > _FORMAT:
        raise AnalyticsError("the offset in the checkpoint was written by a newer version of Leveret; use that version")
    body, row_bytes = octets[_HEAD_BYTES:], columns * _NUMBER_BYTES
    if octets[:_HEAD_BYTES] != bytes([_FORMAT, columns]) or not body or len(body) % row_bytes:
        raise AnalyticsError(
            "the offset in the checkpoint is damaged: restore the checkpoint from a copy, or begin with a new "
            "checkpoint directory"
        )
    planes = np.frombuffer(body, np.uint8).reshape(columns, _NUMBER_BYTES, len(body) // row_bytes)
    found = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u8").reshape(columns, -1)
    first = np.cumsum(found[:1], 1, dtype=np.uint64)
    rows: list[list[int]] = np.concatenate([first, found[1:]]).T.tolist()
    return rows
