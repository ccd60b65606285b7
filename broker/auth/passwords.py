"""Password hashes as RabbitMQ stores and exports them: base64 of a 4-byte salt and hash(salt + password).

New passwords follow rules: a length, a pattern, and a list of those that are refused. Hashes are not checked.

Source: https://www.rabbitmq.com/docs/passwords and https://www.rabbitmq.com/docs/passwords#validation
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leveret.policies.patterns import Pattern

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


# -- rules ------------------------------------------------------------------------------------------------

#: Reason of RabbitMQ's HTTP API for a password against the rules.
REFUSED_PASSWORD: Final = "credential_validation_failed"
#: Value of the option default_pass with which a new data directory gets a password that nobody chose.
GENERATE: Final = "generate"
#: Characters of a generated password, of 6 bits each.
_GENERATED_LENGTH: Final = 32


class RefusedPassword(ValueError):
    """A password is against a rule; the text says which, and does not have the password."""


@dataclass(frozen=True, slots=True)
class PasswordRules:
    """What is asked of new passwords.

    Args:
        min_length: Fewest bytes; 0 for no such rule.
        pattern: What a password must match; None for no such rule.
        refused: Passwords that are refused, in the form of folded().
    """

    min_length: int = 0
    pattern: Pattern | None = None
    refused: frozenset[str] = frozenset()

    def check(self, password: str | bytes) -> None:
        """Require that a password follows the rules.

        Raises:
            RefusedPassword: It does not. The first two texts are RabbitMQ's.
        """
        octets = password.encode("utf-8", "surrogateescape") if isinstance(password, str) else password
        if len(octets) < self.min_length:
            raise RefusedPassword(f"minimum required password length is {self.min_length}")
        if self.pattern is not None and not self.pattern.matches(octets.decode("utf-8", "surrogateescape")):
            raise RefusedPassword("provided password does not match the validator regular expression")
        if self.refused and folded(octets) in self.refused:
            raise RefusedPassword("provided password is in the list of refused passwords")


NO_RULES: Final = PasswordRules()


def folded(password: bytes) -> str:
    """Return the form in which passwords are compared with the refused ones: without regard to case."""
    return password.decode("utf-8", "surrogateescape").casefold()


def read_refused(path: Path) -> frozenset[str]:
    """Return the passwords of a file, one in each line, in the form of folded(). Empty lines count for nothing.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return frozenset(folded(line) for each in file if (line := each.rstrip(b"\r\n")))


def new_password(rules: PasswordRules = NO_RULES) -> str:
    """Return a random password of letters, digits, ``-`` and ``_``, as long as the rules ask for."""
    return secrets.token_urlsafe(max(_GENERATED_LENGTH * 3 // 4, rules.min_length))


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
