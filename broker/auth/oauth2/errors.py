"""Why tokens and logins are refused. This module needs no library."""

from __future__ import annotations


class TokenRefused(ValueError):
    """A token is not taken. The text says why, for the log, and has nothing of the token that is secret."""


class LoginError(Exception):
    """A login at the provider has failed. The text says why, for the log.

    Args:
        code: For the page: `expired`, or what the provider says, such as `access_denied`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
