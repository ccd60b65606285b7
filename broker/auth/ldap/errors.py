"""Errors of queries and directories."""

from __future__ import annotations


class InvalidQuery(ValueError):
    """A configured query is not one; the text says what is wrong."""


class QueryFailed(Exception):
    """A query has no answer: what it asks for does not exist, or must not be read. The text says which."""


class InvalidCredentials(Exception):
    """The server does not accept a DN and password."""


class DirectoryError(Exception):
    """The servers cannot be asked.

    Args:
        reason: RabbitMQ's word for it.
        detail: What happened, for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
