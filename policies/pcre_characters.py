r"""The characters that PCRE 8 has in its classes, escapes and properties, in the syntax of the `regex` library.

Patterns are matched against bytes, so these are the characters 0 to 255.

Source: pcrepattern(3); Erlang's re module, observed in RabbitMQ 3.10.8.
"""

from __future__ import annotations

from typing import Final

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
