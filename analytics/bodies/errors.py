"""What is wrong with a body."""

from __future__ import annotations

from typing import Final

#: What serializers of a schema registry put in front of a body: a zero, and the number of its schema.
_REGISTRY_BYTES: Final = 5


class BodyError(ValueError):
    """A body, or a part of it, is not what it should be; the text says why, for the column `value_error`."""


def registry_hint(octets: bytes) -> str:
    """Return what to add to the reason why a body cannot be read, if a schema registry may have to do with it."""
    if len(octets) < _REGISTRY_BYTES or octets[0]:
        return ""
    number = int.from_bytes(octets[1:_REGISTRY_BYTES], "big")
    return f"; it may begin with the five bytes of a schema registry (schema {number}), which are not read"
