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

_WORD: Final = r"0-9A-Z_a-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff"
_LOWER: Final = r"a-z\xaa\xb5\xba\xdf-\xf6\xf8-\xff"
_UPPER: Final = r"A-Z\xc0-\xd6\xd8-\xde"
_VERTICAL: Final = r"\x0a-\x0d\x85"

#: Members of the POSIX classes.
POSIX: Final = {
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
ESCAPED_CLASSES: Final = {"d": "0-9", "w": _WORD, "s": POSIX["space"], "h": r"\x09\x20\xa0", "v": _VERTICAL}
CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
WORD_EDGE: Final = rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))"
#: Escapes outside a class that match no character.
ASSERTIONS: Final = {
    "A": r"\A", "B": rf"(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}]))", "G": r"\G", "K": "",
    "Z": r"(?=\n?\Z)", "z": r"\Z", "b": WORD_EDGE,
}  # fmt: skip
#: What stands for the start and the end of a word, and what it looks at.
WORD_ENDS: Final = {"[:<:]]": rf"(?=[{_WORD}])", "[:>:]]": rf"(?<=[{_WORD}])"}
WILDCARDS: Final = {
    "C": r"[\x00-\xff]", "N": r"[^\x0a]", "R": rf"(?>\x0d\x0a|[{_VERTICAL}])", "X": r"(?>\x0d\x0a|[\x00-\xff])",
}  # fmt: skip
#: Of these the number of characters varies.
VARIABLE: Final = "RX"
ONE_BYTE: Final = r"\x00-\xff"
_LATIN: Final = r"A-Za-z\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\xff"
#: General categories, and groups of them.
PROPERTIES: Final = frozenset(
    (
        *("C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "L&", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn"),
        *("N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"),
        *("S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    )
)


#: Scripts and PCRE's own properties that single bytes have. No byte is of another script.
SCRIPTS: Final = {
    "Any": ONE_BYTE,
    "Latin": _LATIN,
    "Common": r"\x00-\x40\x5b-\x60\x7b-\xa9\xab-\xb9\xbb-\xbf\xd7\xf7",
    "Xan": r"\p{L}\p{N}",
    "Xps": r"\x09-\x0d\x20\x85\xa0",
    "Xsp": r"\x09-\x0d\x20\x85\xa0",
    "Xuc": r"$@`\xa0-\xff",
    "Xwd": r"\p{L}\p{N}_",
}
OTHER_SCRIPTS: Final = frozenset((
    "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Bassa_Vah", "Batak", "Bengali", "Bopomofo", "Brahmi",
    "Braille", "Buginese", "Buhid", "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Chakma", "Cham",
    "Cherokee", "Coptic", "Cuneiform", "Cypriot", "Cyrillic", "Deseret", "Devanagari", "Duployan",
    "Egyptian_Hieroglyphs", "Elbasan", "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek",
    "Gujarati", "Gurmukhi", "Han", "Hangul", "Hanunoo", "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited",
    "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada", "Katakana", "Kayah_Li",
    "Kharoshthi", "Khmer", "Khojki", "Khudawadi", "Lao", "Lepcha", "Limbu", "Linear_A", "Linear_B", "Lisu",
    "Lycian", "Lydian", "Mahajani", "Malayalam", "Mandaic", "Manichaean", "Meetei_Mayek", "Mende_Kikakui",
    "Meroitic_Cursive", "Meroitic_Hieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Myanmar", "Nabataean",
    "New_Tai_Lue", "Nko", "Ogham", "Ol_Chiki", "Old_Italic", "Old_North_Arabian", "Old_Permic", "Old_Persian",
    "Old_South_Arabian", "Old_Turkic", "Oriya", "Osmanya", "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Phags_Pa",
    "Phoenician", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian", "Siddham",
    "Sinhala", "Sora_Sompeng", "Sundanese", "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham",
    "Tai_Viet", "Takri", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Ugaritic", "Vai",
    "Warang_Citi", "Yi",
))  # fmt: skip


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

_LOOKING_BEHIND: Final = ("(?<=", "(?<!")
_LOOKING: Final = ("(?=", "(?!", *_LOOKING_BEHIND)
_GROUPS: Final = ("(?:", *_LOOKING, "(?>", "(?|")


#: Syntax after a position. Matched in place: copying the rest of the pattern at each step would take quadratic time.
_FLAGS: Final = regex.compile(r"\(\?([imsxU]*)(-[imsxU]*)?([:)])")
_GROUP_NAME: Final = regex.compile(r"\(\?(?:P?<([A-Za-z_]\w*)>|'([A-Za-z_]\w*)')", regex.ASCII)
_COUNTS: Final = regex.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_REFERENCE: Final = regex.compile(r"<(?P<name>\w+)>|'(?P<name>\w+)'|\{(?P<name>\w+)\}", regex.ASCII)
_PROPERTY: Final = regex.compile(r"\{(?P<name>\^?[A-Za-z&_]+)\}|(?P<name>[A-Z])")
_HEXADECIMAL: Final = regex.compile(r"\{([0-9A-Fa-f]+)\}")
_OCTAL: Final = regex.compile(r"\{([0-7]+)\}")
_NUMBER: Final = regex.compile(r"[0-9]+")
_GROUP_NUMBER: Final = regex.compile(r"\{(-?)([0-9]{1,6})\}|(-?)([0-9]{1,6})")
_NAMED_REFERENCE: Final = regex.compile(r"\(\?P=([A-Za-z_]\w*)\)", regex.ASCII)
_FAILURE: Final = regex.compile(r"\*F(?:AIL)?\)")
_SPACE: Final = regex.compile(r"(?:[\x09-\x0d\x20]|#[^\n]*(?:\n|\Z))+")

_NO_COLLATING: Final = "POSIX collating elements are not supported"
_NAME_MAX: Final = 32
#: Digits of numbers, which have no leading zeros.
_DIGITS_MAX: Final = 9
_NO_CLASS_END: Final = "missing terminating ] for character class"


def _literal(character: str) -> str:
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{ord(character):02x}"


class _Group:
    """A group that is open.

    Args:
        flags: Flags to return to where it ends.
        begin: What it begins with.
        groups: Number of capturing groups before it.

    Attributes:
        nodes: Number of nodes.
        length: Number of characters that the current alternative matches; None if it varies.
        lengths: The same of the alternatives before it.
        highest: The highest number of a capturing group in an alternative before the current one.
    """

    __slots__ = ("begin", "flags", "groups", "highest", "length", "lengths", "nodes")

    def __init__(self, flags: frozenset[str], begin: str, groups: int) -> None:
        self.flags = flags
        self.begin = begin
        self.groups = self.highest = groups
        self.nodes = 0
        self.length: int | None = 0
        self.lengths: list[int | None] = []

    def total_length(self) -> int | None:
        """Return the number of characters that it consumes; None if that varies."""
        if self.begin in _LOOKING:
            return 0
        return self.length if all(each == self.length for each in self.lengths) else None


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
        self._flags: frozenset[str] = frozenset()
        #: The open groups; the first one is the whole pattern.
        self._open_groups = [_Group(self._flags, "", 0)]
        #: Nodes of the last atom: None if it cannot be repeated.
        self._atom: int | None = None
        self._atom_length: int | None = 0
        #: Number of the last capturing group, and the numbers of those with names.
        self._groups = 0
        self._names: dict[str, int] = {}
        #: Properties of the current class.
        self._properties: list[str] = []

    def translate(self) -> str:
        """Return the translated pattern.

        Raises:
            InvalidPattern: The pattern is invalid, or uses syntax without an equivalent.
        """
        if len(self._text) > _LENGTH_MAX:
            raise self._fail(_TOO_LARGE)
        while self._skip_space() < len(self._text):
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

    def _skip_space(self) -> int:
        """Skip spaces and comments where the flag x is set; return the position."""
        if "x" in self._flags and (space := _SPACE.match(self._text, self._at)):
            self._at = space.end()
        return self._at

    def _emit(self, translated: str, nodes: int | None = 1, length: int | None = 1) -> None:
        """Append an atom.

        Args:
            translated: The translated atom.
            nodes: Number of its nodes; None if it cannot be repeated.
            length: Number of characters that it matches; None if that varies.
        """
        self._out.append(translated)
        self._atom, self._atom_length = nodes, length
        self._add(nodes or 0, length)

    def _add(self, nodes: int, length: int | None) -> None:
        group = self._open_groups[-1]
        group.nodes += nodes
        group.length = None if group.length is None or length is None else group.length + length
        if group.nodes > _NODES_MAX:
            raise self._fail(_TOO_LARGE)

    # -- outside a class ----------------------------------------------------------------------------------

    def _end(self) -> None:
        self._emit("$", None, 0)

    def _alternative(self) -> None:
        group = self._open_groups[-1]
        group.lengths.append(group.length)
        group.length = 0
        if group.begin == "(?|":
            group.highest, self._groups = max(group.highest, self._groups), group.groups
        self._emit("|", None, 0)

    def _start(self) -> None:
        # PCRE's multi-line ^ does not match after a newline at the end of the text.
        self._emit(r"^(?!(?<=\n)\Z)" if "m" in self._flags else "^", None, 0)

    def _open(self) -> None:
        if self._looking_at("*"):
            failure = _FAILURE.match(self._text, self._at)
            if failure is None:
                raise self._fail("(*VERB) is not supported")
            self._at = failure.end()
            self._emit("(?!)", None, 0)
            return
        before, begin = self._flags, "("
        if self._looking_at("?"):
            special = self._special_group()
            if special is None:
                return
            begin = special
        group = _Group(before, begin, self._groups)
        if begin == "(" or begin.startswith("(?P<"):
            self._groups += 1
        self._out.append(begin)
        self._open_groups.append(group)
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
            return self._set_flags(flags[1], (flags[2] or "")[1:], ends=flags[3] == ")")
        name = _GROUP_NAME.match(self._text, start)
        if name is not None:
            self._at = name.end()
            return f"(?P<{self._named(name[1] or name[2])}>"
        reference = _NAMED_REFERENCE.match(self._text, start)
        if reference is not None:
            self._at = reference.end()
            self._emit(f"(?P={reference[1]})", _SET_NODES, None)
            return None
        for group in _GROUPS:
            if self._text.startswith(group, start):
                self._at += len(group) - 1
                return group
        raise self._fail(f"{self._text[start : start + 3]} is not supported")

    def _set_flags(self, added: str, removed: str, ends: bool) -> str | None:
        """Set and clear flags; return the beginning of their group, or None if they hold up to the end of the group."""
        self._flags = (self._flags | set(added)) - set(removed)
        # The others have been translated.
        on, off = ("".join(flag for flag in flags if flag in "ims") for flags in (added, removed))
        wanted = f"{on}-{off}" if off else on
        if not ends:
            return f"(?{wanted}:"
        self._emit(f"(?{wanted})" if wanted else "", None, 0)
        return None

    def _named(self, name: str) -> str:
        """Note the name of the next capturing group, and return it."""
        if len(name) > _NAME_MAX:
            raise self._fail("subpattern name is too long (maximum 32 characters)")
        if self._names.setdefault(name, self._groups + 1) != self._groups + 1:
            raise self._fail("two named subpatterns have the same name")
        return name

    def _close(self) -> None:
        if len(self._open_groups) == 1:
            raise self._fail("unmatched parentheses")
        group = self._open_groups.pop()
        if group.begin in _LOOKING_BEHIND and None in (*group.lengths, group.length):
            raise self._fail("lookbehind assertion is not fixed length")
        self._groups = max(self._groups, group.highest)
        self._flags = group.flags
        self._emit(")", group.nodes + 1, group.total_length())

    def _quantifier(self) -> None:
        self._repeat(self._text[self._at - 1], None, 1)

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
        self._repeat(counts[0], most if most == least and counts[2] != "" else None, most)

    def _repeat(self, quantifier: str, exactly: int | None, most: int) -> None:
        """Repeat the last atom.

        Args:
            quantifier: The quantifier.
            exactly: How often, if that is fixed.
            most: How often at most, as far as the nodes are concerned.
        """
        if self._atom is None:
            raise self._fail("nothing to repeat")
        length = self._atom_length
        if length is not None:
            length = None if exactly is None else length * (exactly - 1)
        self._add(self._atom * max(most - 1, 0), length)
        self._out.append(quantifier)
        self._skip_space()
        following = self._take() if self._looking_at("+") or self._looking_at("?") else ""
        if following != "+" and "U" in self._flags:
            # The other way round.
            following = "" if following else "?"
        self._out.append(following)
        self._atom = None

    def _escape(self) -> None:
        character = self._take()
        if character == "Q":
            for quoted in self._quoted():
                self._emit(_literal(quoted))
        elif character == "E":
            pass
        elif character in ASSERTIONS:
            self._emit(ASSERTIONS[character], None, 0)
            self._add(_SET_NODES if character in "bB" else 1, 0)
        elif character in WILDCARDS and not (character == "N" and self._is_named_character()):
            self._emit(WILDCARDS[character], _SET_NODES, None if character in VARIABLE else 1)
        elif character.lower() in ESCAPED_CLASSES:
            self._emit(f"[{'^' if character.isupper() else ''}{ESCAPED_CLASSES[character.lower()]}]", _SET_NODES)
        elif character in "pP":
            self._emit(self._whatever_case(f"[{self._property(character)}]"), _SET_NODES)
        elif character in "kg":
            self._emit(self._named_reference() if character == "k" else self._numbered_reference(), _SET_NODES, None)
        elif character in "123456789":
            self._number()
        else:
            self._emit(_literal(self._escaped_literal(character)))

    def _is_named_character(self) -> bool:
        return self._looking_at("{") and _COUNTS.match(self._text, self._at) is None

    def _property(self, character: str) -> str:
        """Translate a Unicode property of a Latin-1 character to members of a class."""
        named = _PROPERTY.match(self._text, self._at)
        name = "" if named is None else named["name"].lstrip("^")
        if name in PROPERTIES:
            members = f"\\p{{{name}}}"
        elif name in SCRIPTS or name in OTHER_SCRIPTS:
            members = SCRIPTS.get(name, f"[^{ONE_BYTE}]")
        else:
            raise self._fail("unknown property name after \\P or \\p")
        assert named is not None
        self._at = named.end()
        return f"[^{members}]" if (character == "P") != named["name"].startswith("^") else members

    def _whatever_case(self, translated: str) -> str:
        """Return syntax that the flag i does not apply to, as it does not to properties in PCRE."""
        return f"(?-i:{translated})" if "i" in self._flags else translated

    def _named_reference(self) -> str:
        named = _REFERENCE.match(self._text, self._at)
        if named is None:
            raise self._fail("\\k is not followed by a name in braces, angle brackets or quotes")
        self._at = named.end()
        return f"(?P={named['name']})"

    def _numbered_reference(self) -> str:
        r"""Translate the rest of ``\g1``, ``\g{1}``, ``\g{-1}`` or ``\g{name}``."""
        if self._looking_at("{") and (named := _REFERENCE.match(self._text, self._at)) and not named["name"].isdigit():
            return self._named_reference()
        numbered = _GROUP_NUMBER.match(self._text, self._at)
        if numbered is None:
            raise self._fail("\\g is not supported")
        self._at = numbered.end()
        number = int(numbered[2] or numbered[4])
        if numbered[1] or numbered[3]:
            number = self._groups + 1 - number if number else 0
        if number <= 0:
            raise self._fail("reference to non-existent subpattern")
        return f"(?:\\g<{number}>)"

    def _number(self) -> None:
        r"""Translate a number after a backslash: a back reference, or else an octal number of up to three digits."""
        self._at -= 1
        digits = _NUMBER.match(self._text, self._at)
        assert digits is not None
        if len(digits[0]) > _DIGITS_MAX:
            raise self._fail("number is too big")
        number = int(digits[0])
        if number < 8 or number <= self._groups:
            self._at = digits.end()
            self._emit(f"(?:\\g<{number}>)", 1, None)
        else:
            self._emit(_literal(self._octal_or_digit()))

    def _octal_or_digit(self) -> str:
        """Consume and return the character of an octal number, or 8 or 9."""
        digits = self._digits(string.octdigits, 3)
        if not digits:
            return self._take()
        if int(digits, 8) > 0xFF:
            raise self._fail("octal value is greater than \\377 in 8-bit non-UTF-8 mode")
        return chr(int(digits, 8))

    def _quoted(self) -> str:
        r"""Consume and return quoted text, up to ``\E`` or the end of the pattern."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return quoted

    def _escaped_literal(self, character: str) -> str:
        """Return the single character that an escape matches, inside and outside a class."""
        if character in CONTROLS:
            return chr(CONTROLS[character])
        if character == "c":
            controlled = self._take()
            if not controlled.isascii():
                raise self._fail("\\c must be followed by an ASCII character")
            return chr(ord(controlled.upper()) ^ 0x40)
        if character == "0":
            return chr(int(self._digits(string.octdigits, 2) or "0", 8))
        if character == "x" and not self._looking_at("{"):
            return chr(int(self._digits(string.hexdigits, 2) or "0", 16))
        if character in "xo":
            return self._braced(_HEXADECIMAL if character == "x" else _OCTAL, 16 if character == "x" else 8)
        if character in "luLNU":
            raise self._fail(f"\\{character} is not supported")
        return character

    def _braced(self, syntax: regex.Pattern[str], base: int) -> str:
        """Consume and return a character whose number is in braces."""
        braced = syntax.match(self._text, self._at)
        if braced is None:
            raise self._fail("non-octal or non-hex character, or digits missing, in \\o{} or \\x{}")
        self._at = braced.end()
        # Python's int() refuses numbers with thousands of digits.
        digits = braced[1].lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX or int(digits, base) > 0xFF:
            raise self._fail("character value in \\x{} or \\o{} is too large")
        return chr(int(digits, base))

    def _digits(self, allowed: str, most: int) -> str:
        start = self._at
        while self._at < len(self._text) and self._at - start < most and self._text[self._at] in allowed:
            self._at += 1
        return self._text[start : self._at]

    # -- inside a class -----------------------------------------------------------------------------------

    def _class(self) -> None:
        for ends, looks_at in WORD_ENDS.items():
            if self._looking_at(ends):
                self._at += len(ends)
                self._emit(WORD_EDGE, None, 0)
                self._add(_SET_NODES, 0)
                self._emit(looks_at, _SET_NODES, 0)
                return
        if (end := self._posix_end(self._at - 1)) >= 0:
            self._at = end
            colon = self._text[end] == ":"
            raise self._fail("POSIX named classes are supported only within a class" if colon else _NO_COLLATING)
        negated = self._looking_at("^")
        self._at += negated
        members: list[str] = []
        self._properties = []
        first = True
        while first or not self._looking_at("]"):
            members.append(self._member())
            first = False
        self._at += 1
        inside, properties = "".join(members), "".join(self._properties)
        if not inside and not properties:
            # \Q\E alone.
            raise self._fail(_NO_CLASS_END)
        self._emit(self._whole_class(negated, inside, properties), _SET_NODES)

    def _whole_class(self, negated: bool, inside: str, properties: str) -> str:
        """Translate a class with these members and properties."""
        if not properties or "i" not in self._flags:
            return f"[{'^' if negated else ''}{inside}{properties}]"
        exact = self._whatever_case(f"[{properties}]")
        if negated:
            return f"(?:(?!{exact})[{f'^{inside}' if inside else ONE_BYTE}])"
        return f"(?:{exact}|[{inside}])" if inside else exact

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
        if (end := self._posix_end(self._at)) >= 0:
            name = self._text[self._at + 2 : end]
            self._at = end + 2
            if self._text[end] != ":":
                raise self._fail(_NO_COLLATING)
            if name.removeprefix("^") not in POSIX:
                raise self._fail("unknown POSIX class name")
            return f"[^{POSIX[name[1:]]}]" if name.startswith("^") else POSIX[name]
        if not self._looking_at("\\"):
            return None
        character = self._text[self._at + 1 : self._at + 2]
        members = ESCAPED_CLASSES.get(character.lower())
        if members is None and (not character or character not in "QEpP"):
            return None
        self._at += 2
        if members is not None:
            return f"[^{members}]" if character.isupper() else members
        if character in "pP":
            self._properties.append(self._property(character))
            return ""
        return "".join(map(_literal, self._quoted())) if character == "Q" else ""

    def _posix_end(self, start: int) -> int:
        """Return where the name of a POSIX class, or what looks like one, ends; -1 if there is none at a position."""
        sign = self._text[start + 1 : start + 2]
        if self._text[start : start + 1] != "[" or not sign or sign not in ":.=":
            return -1
        at = start + 2
        while at < len(self._text):
            pair = self._text[at : at + 2]
            if pair in ("\\]", "\\\\"):
                at += 1
            elif pair == f"[{sign}" or pair[0] == "]":
                return -1
            elif pair == f"{sign}]":
                return at
            at += 1
        return -1

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
            return self._octal_or_digit()
        return self._escaped_literal(character)

    _STEPS: Final = {
        "\\": _escape, "[": _class, "(": _open, ")": _close, "{": _brace, ".": lambda self: self._emit("."),
        "*": _quantifier, "+": _quantifier, "?": _quantifier, "^": _start, "$": _end, "|": _alternative,
    }  # fmt: skip
