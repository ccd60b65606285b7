"""Password hashes as RabbitMQ stores and exports them: base64 of a 4-byte salt and hash(salt + password).

Source: https://www.rabbitmq.com/docs/passwords
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from leveret.broker.auth.password_rules import NO_RULES, PasswordRules

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
#: Used by RabbitMQ before 3.6; accepted, but never used for new hashes.
MD5: Final = "rabbit_password_hashing_md5"

#: Hash constructors by the names in definitions.
ALGORITHMS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    SHA256: hashlib.sha256,
    SHA512: hashlib.sha512,
    MD5: lambda octets: hashlib.md5(octets, usedforsecurity=False),
}

_SALT_SIZE: Final = 4


class InvalidHash(ValueError):
    """A malformed password hash: not base64, of the wrong length, or of an unknown algorithm."""


def hash_password(password: str | bytes, algorithm: str = SHA256) -> str:
    """Hash a password with a new salt.

    Args:
        password: The password; text is encoded as UTF-8.
    Returns:
        Base64 text.
    """
    octets = password.encode("utf-8", "surrogateescape") if isinstance(password, str) else password
    salt = secrets.token_bytes(_SALT_SIZE)
    return base64.b64encode(salt + ALGORITHMS[algorithm](salt + octets).digest()).decode("ascii")


def verify_password(password: bytes, password_hash: str, algorithm: str = SHA256) -> bool:
    """Check a password against a hash in constant time.

    Args:
        password: As the client sent it.
        password_hash: As hash_password returns it; a malformed hash matches no password.
    """
    try:
        stored = decode_hash(password_hash, algorithm)
    except InvalidHash:
        return False
    salt, expected = stored[:_SALT_SIZE], stored[_SALT_SIZE:]
    return hmac.compare_digest(ALGORITHMS[algorithm](salt + password).digest(), expected)


def check_hash(password_hash: str, algorithm: str) -> None:
    """Validate a password hash. As in RabbitMQ the length is not checked: a hash of wrong length matches no password.

    Raises:
        InvalidHash: It is not base64, or the algorithm is unknown.
    """
    if algorithm not in ALGORITHMS:
        raise InvalidHash(f"unknown hashing algorithm '{algorithm}', known are {', '.join(ALGORITHMS)}")
    _decode(password_hash)


def choose_hash(
    password: str | None, password_hash: str | None, algorithm: str, rules: PasswordRules = NO_RULES
) -> tuple[str, str]:
    """Return the password hash of a user, and its algorithm. Without a password and a hash, the hash is "".

    Args:
        password_hash: The hash, if there is no password.
        rules: What is asked of the password.
    Raises:
        InvalidHash: The hash is not base64, or the algorithm is unknown.
        RefusedPassword: The password is against the rules.
    """
    if password is not None:
        rules.check(password)
    if password:
        return hash_password(password), SHA256
    if not password_hash:
        return "", SHA256
    check_hash(password_hash, algorithm)
    return password_hash, algorithm


def decode_hash(password_hash: str, algorithm: str) -> bytes:
    """Return the bytes of a stored hash: the salt, then the digest.

    Raises:
        InvalidHash: The hash is malformed.
    """
    check_hash(password_hash, algorithm)
    stored = _decode(password_hash)
    wanted = _SALT_SIZE + ALGORITHMS[algorithm](b"").digest_size
    if len(stored) != wanted:
        raise InvalidHash(f"the hash has {len(stored)} bytes, {algorithm} needs {wanted}")
    return stored


def _decode(password_hash: str) -> bytes:
    try:
        return base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidHash("the hash is not base64") from None
