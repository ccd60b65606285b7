"""What is wrong with a body."""

from __future__ import annotations


class BodyError(ValueError):
    """A body, or a part of it, is not what it should be; the text says why, for the column `value_error`."""
