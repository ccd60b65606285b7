"""Hash values for exchange types: the same in every process, so that a restart changes no route."""

from __future__ import annotations

from hashlib import blake2b


def hash_octets(octets: bytes) -> int:
    """Return a hash value of 0 to 2^64 - 1."""
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big")
