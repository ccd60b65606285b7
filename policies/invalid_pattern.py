"""Errors of regular expressions."""

from __future__ import annotations


class InvalidPattern(ValueError):
    """A text that is not a regular expression, or uses unsupported syntax; the error's text says which.

    Args:
        reason: What is wrong with it.
        position: Offset of the error in bytes.
    """

    def __init__(self, source: str, reason: str, position: int) -> None:
        super().__init__(f"{source!r} is not a regular expression: {reason}")
        self.source = source
        self.reason = reason
        self.position = position

    def within(self, what: str) -> InvalidPattern:
        """Return this error with the pattern's purpose in front of its text."""
        self.args = (f"{what}: {self}",)
        return self

    def as_term(self) -> str:
        """Return reason and position as Erlang prints them."""
        return f'{{"{self.reason}",{self.position}}}'

    def as_json(self, source: object = None) -> list[object]:
        """Return the JSON of RabbitMQ's HTTP API: an Erlang term whose strings are lists of numbers.

        Args:
            source: Replaces the list of the text's bytes; None for that list.
        """
        text = list(self.source.encode("utf-8", "surrogateescape")) if source is None else source
        return ["invalid_regexp", text, [list(self.reason.encode()), self.position]]


class SearchLimitExceeded(Exception):
    """A search has exceeded its time limit: whether the pattern matches is unknown."""

    def __init__(self, source: str, text: str) -> None:
        super().__init__(f"the pattern {source!r} takes too long on {text!r}")
