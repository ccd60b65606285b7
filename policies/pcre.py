r"""Translates PCRE patterns to the syntax of the `regex` library.

That library's syntax differs from PCRE's: ``a{e}`` would match anything (fuzzy matching), ``[[:punct:]]`` is
another set, ``\Z`` and ``\v`` mean something else. So patterns are translated. Syntax without an equivalent is
refused.

Source: pcrepattern(3); Erlang's re module, observed in RabbitMQ 3.10.8.
"""

from __future__ import annotations

import string
from typing import Final

import regex

from leveret.policies.invalid_pattern import InvalidPattern

#: Counted repeats are unrolled when a pattern is compiled, ``((a{1000}){1000}){1000}`` to a thousand million
#: nodes. At about 300 bytes a node this allows 20 MB. PCRE allows 64 KiB of compiled code, with 32 bytes per set.
_NODES_MAX: Final = 65_535
_SET_NODES: Final = 32
#: Longest pattern in bytes. Only this limits comments and the like, which compile to no nodes.
_LENGTH_MAX: Final = 65_535
_TOO_LARGE: Final = "regular expression is too large"
_REPEATS_MAX: Final = 65_535
_COUNTS_LENGTH_MAX: Final = 100
_REPEATED_TOO_OFTEN: Final = "number too big in {} quantifier"

_WORD: Final = r"0-9A-Z_a-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff"
_LOWER: Final = r"a-z\xaa\xb5\xba\xdf-\xf6\xf8-\xff"
_UPPER: Final = r"A-Z\xc0-\xd6\xd8-\xde"
_VERTICAL: Final = r"\x0a-\x0d\x85"

#: Members of the POSIX classes.
_POSIX: Final = {
    "alpha": r"A-Za-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff",
    "lower": _LOWER,
    "upper": _UPPER,
    "alnum": r"0-9A-Za-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff",
    "ascii": r"\x00-\xff",
    "blank": r"\x09\x20",
    "cntrl": r"\x00-\x1f\x7f-\x9f",
    "digit": "0-9",
    "graph": r"\x21-\x7e\xa0-\xff",
    "print": r"\x20-\x7e\xa0-\xff",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e\xa0-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\xd7\xf7",
    "space": r"\x09-\x0d\x20",
    "word": _WORD,
    "xdigit": "0-9A-Fa-f",
}
#: Members of the classes of escapes; the capital letter means the complement.
_ESCAPED_CLASSES: Final = {"d": "0-9", "w": _WORD, "s": _POSIX["space"], "h": r"\x09\x20\xa0", "v": _VERTICAL}
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
#: Escapes outside a class that match no character.
_ASSERTIONS: Final = {
    "A": r"\A", "B": rf"(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}]))", "G": r"\G", "K": "",
    "Z": r"(?=\n?\Z)", "z": r"\Z",
    "b": rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))",
}  # fmt: skip
_WILDCARDS: Final = {"C": r"[\x00-\xff]", "N": r"[^\x0a]", "R": rf"(?>\x0d\x0a|[{_VERTICAL}])"}
_GROUPS: Final = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?|")


#: General categories, and groups of them.
_PROPERTIES: Final = frozenset(
    (
        *("C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "L&", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn"),
        *("N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"),
        *("S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    )
)


#: Syntax after a position. Matched in place: copying the rest of the pattern at each step would take quadratic time.
_FLAGS: Final = regex.compile(r"\(\?([ims]*(?:-[ims]*)?)([:)])")
_GROUP_NAME: Final = regex.compile(r"\(\?(?:P?<([A-Za-z_]\w*)>|'([A-Za-z_]\w*)')", regex.ASCII)
_COUNTS: Final = regex.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_REFERENCE: Final = regex.compile(r"<(?P<name>\w+)>|'(?P<name>\w+)'|\{(?P<name>\w+)\}", regex.ASCII)
_PROPERTY: Final = regex.compile(r"\{(?P<name>\^?[A-Za-z&_]+)\}|(?P<name>[A-Z])")
_HEXADECIMAL: Final = regex.compile(r"\{([0-9A-Fa-f]+)\}")
_POSIX_CLASS: Final = regex.compile(r"\[:(\^?)([a-z]*):\]")

_NO_CLASS_END: Final = "missing terminating ] for character class"


def _literal(character: str) -> str:
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{ord(character):02x}"


class Translator:
    """Translator of one PCRE pattern to the syntax of the `regex` library.

    Args:
        source: The pattern.
        octets: Its bytes as characters 0..255.
    """

    def __init__(self, source: str, octets: str) -> None:
        self._source = source
        self._text = octets
        self._at = 0
        self._out: list[str] = []
        # Nodes of each open group, and of the last atom: None if it cannot be repeated.
        self._nodes = [0]
        self._atom: int | None = None
        self._multiline = False

    def translate(self) -> str:
        """Return the translated pattern.

        Raises:
            InvalidPattern: The pattern is invalid, or uses syntax without an equivalent.
        """
        if len(self._text) > _LENGTH_MAX:
            raise self._fail(_TOO_LARGE)
        while self._at < len(self._text):
            character = self._take()
            step = self._STEPS.get(character)
            if step is not None:
                step(self)
            else:
                self._emit(_literal(character))
        return "".join(self._out)

    def _fail(self, reason: str) -> InvalidPattern:
        return InvalidPattern(self._source, reason, self._at)

    def _take(self, missing: str = "\\ at end of pattern") -> str:
        if self._at >= len(self._text):
            raise self._fail(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _looking_at(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _emit(self, translated: str, nodes: int | None = 1) -> None:
        """Append an atom; nodes is None if it cannot be repeated."""
        self._out.append(translated)
        self._atom = nodes
        self._add_nodes(nodes or 0)

    def _add_nodes(self, nodes: int) -> None:
        self._nodes[-1] += nodes
        if self._nodes[-1] > _NODES_MAX:
            raise self._fail(_TOO_LARGE)

    # -- outside a class ----------------------------------------------------------------------------------

    def _unchanged(self) -> None:
        self._emit(self._text[self._at - 1], None)

    def _start(self) -> None:
        # PCRE's multi-line ^ does not match after a newline at the end of the text.
        self._emit(r"^(?!(?<=\n)\Z)" if self._multiline else "^", None)

    def _open(self) -> None:
        if self._looking_at("*"):
            raise self._fail("(*VERB) is not supported")
        translated = "("
        if self._looking_at("?"):
            special = self._special_group()
            if special is None:
                return
            translated = special
        self._out.append(translated)
        self._nodes.append(0)
        self._atom = None

    def _special_group(self) -> str | None:
        """Translate syntax that begins with ``(?``; return None if it does not open a group."""
        start = self._at - 1
        if self._text.startswith("(?#", start):
            end = self._text.find(")", self._at)
            if end < 0:
                raise self._fail("missing ) after comment")
            self._at = end + 1
            return None
        flags = _FLAGS.match(self._text, start)
        if flags is not None:
            self._at = flags.end()
            wanted = flags[1].removesuffix("-")
            self._multiline |= "m" in wanted
            if flags[2] == ")":
                self._emit(f"(?{wanted})" if wanted else "", None)
                return None
            return f"(?{wanted}:"
        name = _GROUP_NAME.match(self._text, start)
        if name is not None:
            self._at = name.end()
            return f"(?P<{name[1] or name[2]}>"
        for group in _GROUPS:
            if self._text.startswith(group, start):
                self._at += len(group) - 1
                return group
        raise self._fail(f"{self._text[start : start + 3]} is not supported")

    def _close(self) -> None:
        if len(self._nodes) == 1:
            raise self._fail("unmatched parentheses")
        nodes = self._nodes.pop()
        self._emit(")", nodes + 1)

    def _quantifier(self) -> None:
        self._repeat(self._text[self._at - 1], 1)

    def _brace(self) -> None:
        counts = _COUNTS.match(self._text, self._at - 1)
        if counts is None:
            self._emit(_literal("{"))
            return
        # Python's int() refuses numbers with thousands of digits.
        if len(counts[0]) > _COUNTS_LENGTH_MAX:
            raise self._fail(_REPEATED_TOO_OFTEN)
        least = int(counts[1])
        most = int(counts[2]) if counts[2] else least
        if max(least, most) > _REPEATS_MAX:
            raise self._fail(_REPEATED_TOO_OFTEN)
        if most < least:
            raise self._fail("numbers out of order in {} quantifier")
        self._at = counts.end()
        self._repeat(counts[0], most)

    def _repeat(self, quantifier: str, most: int) -> None:
        if self._atom is None:
            raise self._fail("nothing to repeat")
        self._add_nodes(self._atom * max(most - 1, 0))
        self._out.append(quantifier)
        if self._looking_at("+") or self._looking_at("?"):
            self._out.append(self._take())
        self._atom = None

    def _escape(self) -> None:
        character = self._take()
        if character == "Q":
            for quoted in self._quoted():
                self._emit(_literal(quoted))
        elif character == "E":
            pass
        elif character in _ASSERTIONS:
            self._emit(_ASSERTIONS[character], _SET_NODES if character in "bB" else 1)
        elif character in _WILDCARDS and not (character == "N" and self._looking_at("{")):
            self._emit(_WILDCARDS[character], _SET_NODES)
        elif character.lower() in _ESCAPED_CLASSES:
            self._emit(f"[{'^' if character.isupper() else ''}{_ESCAPED_CLASSES[character.lower()]}]", _SET_NODES)
        elif character in "pPk":
            self._emit(self._named_escape(character), _SET_NODES)
        elif character in "123456789":
            if self._text[self._at : self._at + 1].isdigit():
                raise self._fail("only \\1 to \\9 are supported as back references")
            self._emit(f"(?:\\{character})")
        else:
            self._emit(_literal(self._escaped_literal(character)))

    def _named_escape(self, character: str) -> str:
        """Translate an escape with a name: a Unicode property of a Latin-1 character, or a named back reference."""
        if character == "k":
            named = _REFERENCE.match(self._text, self._at)
            template, error = "(?P={})", "\\k is not followed by a name in braces, angle brackets or quotes"
        else:
            named = _PROPERTY.match(self._text, self._at)
            template, error = f"\\{character}{{{{{{}}}}}}", "unknown property name after \\P or \\p"
            if named is not None and named["name"].lstrip("^") not in _PROPERTIES:
                named = None
        if named is None:
            raise self._fail(error)
        self._at = named.end()
        return template.format(named["name"])

    def _quoted(self) -> str:
        r"""Consume and return quoted text, up to ``\E`` or the end of the pattern."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return quoted

    def _escaped_literal(self, character: str) -> str:
        """Return the single character that an escape matches, inside and outside a class."""
        if character in _CONTROLS:
            return chr(_CONTROLS[character])
        if character == "c":
            return chr(ord(self._take().upper()) ^ 0x40)
        if character == "0":
            return chr(int(self._digits(string.octdigits, 2) or "0", 8))
        if character == "x":
            return self._hexadecimal()
        if character in "gklopuLNPUX":
            raise self._fail(f"\\{character} is not supported")
        return character

    def _hexadecimal(self) -> str:
        if not self._looking_at("{"):
            return chr(int(self._digits(string.hexdigits, 2) or "0", 16))
        braced = _HEXADECIMAL.match(self._text, self._at)
        if braced is None:
            return "x"
        self._at = braced.end()
        code = int(braced[1], 16)
        if code > 0xFF:
            raise self._fail("character value in \\x{} is too large")
        return chr(code)

    def _digits(self, allowed: str, most: int) -> str:
        start = self._at
        while self._at < len(self._text) and self._at - start < most and self._text[self._at] in allowed:
            self._at += 1
        return self._text[start : self._at]

    # -- inside a class -----------------------------------------------------------------------------------

    def _class(self) -> None:
        negated = self._looking_at("^")
        self._at += negated
        members: list[str] = []
        first = True
        while first or not self._looking_at("]"):
            members.append(self._member())
            first = False
        self._at += 1
        inside = "".join(members)
        if not inside:
            # \Q\E alone.
            raise self._fail(_NO_CLASS_END)
        self._emit(f"[{'^' if negated else ''}{inside}]", _SET_NODES)

    def _member(self) -> str:
        """Translate one character, range, escape or POSIX class within a class."""
        character_set = self._class_set()
        if character_set is not None:
            return character_set
        low = self._class_character()
        if not self._looking_at("-") or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return _literal(low)
        self._at += 1
        if self._class_set() is not None:
            raise self._fail("invalid range in character class")
        high = self._class_character()
        if high < low:
            raise self._fail("range out of order in character class")
        return f"{_literal(low)}-{_literal(high)}"

    def _class_set(self) -> str | None:
        """Translate an escape or POSIX class for a set of characters; return None before a single character."""
        if posix := _POSIX_CLASS.match(self._text, self._at):
            self._at = posix.end()
            if posix[2] not in _POSIX:
                raise self._fail("unknown POSIX class name")
            return f"[^{_POSIX[posix[2]]}]" if posix[1] else _POSIX[posix[2]]
        if not self._looking_at("\\"):
            return None
        character = self._text[self._at + 1 : self._at + 2]
        members = _ESCAPED_CLASSES.get(character.lower())
        if members is None and character not in ("Q", "E"):
            return None
        self._at += 2
        if members is not None:
            return f"[^{members}]" if character.isupper() else members
        return "".join(map(_literal, self._quoted())) if character == "Q" else ""

    def _class_character(self) -> str:
        """Consume and return a single character of a class."""
        character = self._take(_NO_CLASS_END)
        if character != "\\":
            return character
        character = self._take()
        if character == "b":
            return "\x08"
        if character in "1234567":
            self._at -= 1
            return chr(int(self._digits(string.octdigits, 3), 8) & 0xFF)
        return self._escaped_literal(character)

    _STEPS: Final = {
        "\\": _escape, "[": _class, "(": _open, ")": _close, "{": _brace, ".": lambda self: self._emit("."),
        "*": _quantifier, "+": _quantifier, "?": _quantifier, "^": _start, "$": _unchanged, "|": _unchanged,
    }  # fmt: skip
