"""Regular expressions with RabbitMQ's rules: PCRE on bytes, unanchored, with Latin-1 letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from leveret.policies.invalid_pattern import InvalidPattern, SearchLimitExceeded

if TYPE_CHECKING:
    import regex

#: Time limit of a search in seconds. A normal search takes microseconds; a pattern with catastrophic backtracking may
#: take years. RabbitMQ stops after ten million steps, about 0.2 s; here a search blocks the event loop.
TIMEOUT_SECONDS: Final = 0.01
#: Each timeout of a pattern halves its time limit, down to this.
_TIMEOUT_MIN_SECONDS: Final = 0.001
#: Compiled patterns that are cached. Few, as a large pattern takes some megabytes.
_COMPILED_MAX: Final = 8
#: Characters of a pattern that are logged.
_LOGGED_LENGTH: Final = 100

#: Patterns that match every text. A broker with no other patterns starts without the regex library.
_ALWAYS: Final = frozenset(("", ".*"))
#: Disables full case folding: otherwise a caseless "ss" would match a sharp s.
_PREFIX: Final = "(?-f)"


class _Reporter:
    """Holder of the callback for the first timeout of a pattern."""

    report: Callable[[str, str], None] = staticmethod(lambda source, text: None)


_reporter: Final = _Reporter()


def report_to(report: Callable[[str, str], None]) -> None:
    """Set the callback for the first timeout of a pattern.

    Args:
        report: Called with the beginning of the pattern and the text, which counts as not matching.
    """
    _reporter.report = report


class Pattern:
    """A compiled regular expression.

    Args:
        source: The pattern's text.
    Raises:
        InvalidPattern: It cannot be compiled.
    """

    __slots__ = ("_compiled", "_timeout", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = None if source in _ALWAYS else _compiled(source)
        self._timeout = TIMEOUT_SECONDS

    def __repr__(self) -> str:
        return f"Pattern({self.source!r})"

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text. As in RabbitMQ, a timeout counts as no match.

        The first timeout is reported; see report_to().

        Args:
            text: Text, with surrogates for bytes that are not UTF-8.
        """
        is_reported = self._timeout < TIMEOUT_SECONDS
        try:
            return self.search(text)
        except SearchLimitExceeded:
            if not is_reported:
                _reporter.report(self.source[:_LOGGED_LENGTH], text)
            return False

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text, and raise on a timeout.

        Raises:
            SearchLimitExceeded: The search exceeds the time limit.
        """
        if self._compiled is None:
            return True
        try:
            return self._compiled.search(_octets(text), timeout=self._timeout) is not None
        except (TimeoutError, MemoryError):
            self._timeout = max(self._timeout / 2, _TIMEOUT_MIN_SECONDS)
            raise SearchLimitExceeded(self.source[:_LOGGED_LENGTH], text) from None


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(source: str) -> regex.Pattern[str]:
    import regex

    from leveret.policies.pcre import Translator

    try:
        return regex.compile(
            _PREFIX + Translator(source, _octets(source)).translate(), regex.VERSION1, cache_pattern=False
        )
    except (regex.error, RecursionError, OverflowError) as error:
        reason = getattr(error, "msg", None) or "nested too deep"
        position = getattr(error, "pos", None) or 0
        raise InvalidPattern(source, reason, max(0, position - len(_PREFIX))) from None


def _octets(text: str) -> str:
    """Return the UTF-8 bytes of a text as characters 0..255: PCRE without its UTF option matches bytes."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
