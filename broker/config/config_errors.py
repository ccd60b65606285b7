"""Errors of the configuration.

ConfigError           a file or an environment variable
├── UsageError        the command line
└── DefinitionsError  a definitions document
"""

from __future__ import annotations

from typing import Any, ClassVar


class ConfigError(Exception):
    """The configuration is invalid; the text says in one line where, why, and what is valid.

    Attributes:
        exit_status: Exit status of the program.
    """

    exit_status: ClassVar[int] = 1


class UsageError(ConfigError):
    """The command line is invalid."""

    exit_status: ClassVar[int] = 2


class DefinitionsError(ConfigError):
    """A definitions document cannot be loaded; the text names section and entry, and what is valid.

    Args:
        reason: The reason in RabbitMQ's HTTP API, as JSON; None for the text.

    Attributes:
        option: The option that has the definitions; "" if they come from elsewhere.
    """

    def __init__(self, text: str, reason: Any = None) -> None:
        super().__init__(text)
        self.reason = text if reason is None else reason
        self.option = ""
