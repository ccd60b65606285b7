"""Decoding JSON in steps gives what json.loads() gives."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.policies.json_steps import decoded

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def run(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """Number of steps, and what they return."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


@settings(max_examples=50)
@given(DOCUMENTS, st.sampled_from([None, 1, "\t"]), st.sampled_from(["utf-8", "utf-16", "utf-32-le", "utf-8-sig"]))
def test_it_is_the_same_document(document: Any, indent: Any, encoding: str) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=False).encode(encoding, "surrogatepass")
    assert run(decoded(body))[1] == json.loads(body) == document


@given(st.text(st.sampled_from('[]{},:" 1-.eEtrufalsn\\\x00')))
def test_what_is_refused_is_the_same(text: str) -> None:
    try:
        expected = json.loads(text.encode())
    except ValueError:
        with pytest.raises(ValueError):
            run(decoded(text.encode()))
    else:
        assert run(decoded(text.encode()))[1] == expected


def test_no_step_is_long_and_no_document_too_deep() -> None:
    for body in (b"[" + b"0," * 50_000 + b"0]", b"[" + b"{}," * 50_000 + b"0]", b"[" * 50_000 + b"]" * 50_000):
        steps, document = run(decoded(body))
        assert steps > 150
        assert len(document) in (50_001, 1)
