"""Regular expressions as RabbitMQ matches them: PCRE on bytes, unanchored, with Latin-1's letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.invalid_pattern import InvalidPattern

if TYPE_CHECKING:
    import regex

#: A search that takes longer has met a catastrophic pattern; the event loop stands still meanwhile.
TIMEOUT_SECONDS: Final = 0.05


#: Patterns that match whatever they are searched in. Most brokers have no others, and start without the library.
_ALWAYS: Final = frozenset(("", ".*"))
#: Without it a caseless "ss" would match a sharp s.
_PREFIX: Final = "(?-f)"


class Pattern:
    """A compiled regular expression.

    Args:
        source: As it was written.
    Raises:
        InvalidPattern: It cannot be compiled.
    """

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = None if source in _ALWAYS else _compiled(source)

    def __repr__(self) -> str:
        return f"Pattern({self.source!r})"

    def matches(self, text: str) -> bool:
        """Whether it matches anywhere in a text; False too when that cannot be found out in time.

        Args:
            text: Bytes that are no UTF-8 stand as surrogates.
        """
        if self._compiled is None:
            return True
        try:
            return self._compiled.search(_octets(text), timeout=TIMEOUT_SECONDS) is not None
        except (TimeoutError, MemoryError):
            return False


def _compiled(source: str) -> regex.Pattern[str]:
    import regex

    from policies.pcre import Translator

    try:
        return regex.compile(_PREFIX + Translator(source, _octets(source)).translate(), regex.VERSION1)
    except (regex.error, RecursionError, OverflowError) as error:
        reason = getattr(error, "msg", None) or "nested too deep"
        position = getattr(error, "pos", None) or 0
        raise InvalidPattern(source, reason, max(0, position - len(_PREFIX))) from None


def _octets(text: str) -> str:
    """The UTF-8 bytes of a text as characters 0..255: PCRE without its UTF option looks at bytes."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
