"""Regular expressions as RabbitMQ matches them: PCRE on bytes, unanchored, with Latin-1's letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from leveret.policies.invalid_pattern import InvalidPattern, SearchLimitExceeded

if TYPE_CHECKING:
    import regex

#: A search that takes longer, in seconds, has met a catastrophic pattern, which may try for years: searches of names
#: take microseconds. RabbitMQ gives up after ten million steps, some 0.2 s, while others go on; here the event loop
#: stands still meanwhile.
TIMEOUT_SECONDS: Final = 0.01
#: Of a pattern that has been too slow before: each time half as much as the time before, down to this.
_TIMEOUT_MIN_SECONDS: Final = 0.001
#: Patterns that are kept for those who compile the same once more. Not many: a large one has some megabytes.
_COMPILED_MAX: Final = 8
#: Characters of a pattern in the log.
_SHOWN: Final = 100

#: Patterns that match whatever they are searched in. Most brokers have no others, and start without the library.
_ALWAYS: Final = frozenset(("", ".*"))
#: Without it a caseless "ss" would match a sharp s.
_PREFIX: Final = "(?-f)"


class _Reporter:
    """Has what is called the first time that a pattern takes too long."""

    report: Callable[[str, str], None] = staticmethod(lambda source, text: None)


_reporter: Final = _Reporter()


def report_to(report: Callable[[str, str], None]) -> None:
    """Set what is called the first time that a pattern takes too long.

    Args:
        report: Gets the pattern, or its beginning, and the text that it does not match for that reason.
    """
    _reporter.report = report


class Pattern:
    """A compiled regular expression.

    Args:
        source: As it was written.
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
        """Whether it matches anywhere in a text; no, as in RabbitMQ, when that cannot be found out in time.

        The first time that happens is reported; see report_to().

        Args:
            text: Bytes that are no UTF-8 stand as surrogates.
        """
        is_known = self._timeout < TIMEOUT_SECONDS
        try:
            return self.search(text)
        except SearchLimitExceeded:
            if not is_known:
                _reporter.report(self.source[:_SHOWN], text)
            return False

    def search(self, text: str) -> bool:
        """Like matches(), for those who have to know when it cannot be found out.

        Raises:
            SearchLimitExceeded: It takes too long.
        """
        if self._compiled is None:
            return True
        try:
            return self._compiled.search(_octets(text), timeout=self._timeout) is not None
        except (TimeoutError, MemoryError):
            self._timeout = max(self._timeout / 2, _TIMEOUT_MIN_SECONDS)
            raise SearchLimitExceeded(self.source[:_SHOWN], text) from None


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
    """The UTF-8 bytes of a text as characters 0..255: PCRE without its UTF option looks at bytes."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
