"""What can be wrong with a regular expression."""

from __future__ import annotations


class InvalidPattern(ValueError):
    """A text that is not a regular expression, or uses what is not supported; the text says what.

    Args:
        source: The text.
        reason: What is wrong with it.
        position: Where, counted in bytes from 0.
    """

    def __init__(self, source: str, reason: str, position: int) -> None:
        super().__init__(f"{source!r} is no regular expression: {reason}")
        self.source = source
        self.reason = reason
        self.position = position

    def within(self, what: str) -> InvalidPattern:
        """The same error, with what the pattern is for in front of its text."""
        self.args = (f"{what}: {self}",)
        return self

    def as_term(self) -> str:
        """Reason and position as Erlang prints them."""
        return f'{{"{self.reason}",{self.position}}}'

    def as_json(self, source: object = None) -> list[object]:
        """What RabbitMQ's HTTP API answers: an Erlang term whose strings are lists of numbers.

        Args:
            source: Stands for the text, if it is not to be a list.
        """
        text = list(self.source.encode("utf-8", "surrogateescape")) if source is None else source
        return ["invalid_regexp", text, [list(self.reason.encode()), self.position]]


class SearchLimitExceeded(Exception):
    """A pattern takes too long to search a text: whether it matches is not known.

    Args:
        source: The pattern.
        text: What was searched.
    """

    def __init__(self, source: str, text: str) -> None:
        super().__init__(f"the pattern {source!r} takes too long on {text!r}")
