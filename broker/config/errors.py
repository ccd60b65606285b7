"""What can be wrong with the configuration.

ConfigError           a file, an environment variable or what it points to
├── UsageError        the command line
└── DefinitionsError  a definitions document
"""

from __future__ import annotations

from typing import Any, ClassVar


class ConfigError(Exception):
    """The configuration cannot be used; the text says in one line where, what and what would be right.

    Attributes:
        exit_status: What the program exits with.
    """

    exit_status: ClassVar[int] = 1


class UsageError(ConfigError):
    """The command line cannot be used."""

    exit_status: ClassVar[int] = 2


class DefinitionsError(ConfigError):
    """A definitions document cannot be loaded; the text names section and entry, and what would be right.

    Args:
        text: That text.
        reason: What RabbitMQ's HTTP API answers instead, as JSON; by default the text.
    """

    def __init__(self, text: str, reason: Any = None) -> None:
        super().__init__(text)
        self.reason = text if reason is None else reason
