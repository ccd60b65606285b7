from __future__ import annotations

import pytest

from leveret.broker.auth.ldap.erlang_text import Term, parse_term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ('{in_group, "cn=x,${vhost}"}', ("in_group", "cn=x,${vhost}")),
        ("{constant, true}.", ("constant", True)),
        ("{'not', {constant, false}}", ("not", ("constant", False))),
        ("[]", []),
        ("{'and', [ {constant,true} ,\n % a comment, with }\n {constant, false} ]} .\n", (
            "and", [("constant", True), ("constant", False)]
        )),
        ('<<"/">>', "/"),
        (r'"a\"b\\c\n"', 'a"b\\c\n'),
        ('"ou=a,"  "dc=b"', "ou=a,dc=b"),
        ("[{administrator, {constant, false}}]", [("administrator", ("constant", False))]),
    ],
)  # fmt: skip
def test_terms(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "a term is expected"),
        ("{constant, true", "behind '{constant, true'"),
        ("{constant true}", "',' or '}' is expected"),
        ("{a,}", "'}' is not expected"),
        ("{a} b", "more behind"),
        ("#{a => b}", "a term is expected"),
        ("{a, 1}", "a term is expected"),
        ("Variable", "a term is expected"),
        ('"open', "a term is expected"),
        ("<<a, {b}>>", "a binary must be a string"),
        ("[" * 1000, "nested too deeply"),
    ],
)
def test_what_is_none(text: str, place: str) -> None:
    with pytest.raises(ValueError, match="is not an Erlang term: behind ") as wrong:
        parse_term(text)
    assert place in str(wrong.value)
