"""Why a token is not taken."""

from __future__ import annotations


class TokenRefused(ValueError):
    """A token is not taken. The text says why, for the log, and has nothing of the token that is secret."""
