"""Rules for new passwords: a length, a pattern, and a list of those that are refused. Hashes are not checked.

Source: https://www.rabbitmq.com/docs/passwords#validation
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.policies.patterns import Pattern

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
