"""Decodes long JSON in steps, so that others are served in between. It gives what json.loads() gives, however deep."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any, Final

#: Characters that are read in one step.
_STEP: Final = 512
_SPACE: Final = re.compile(r"[ \t\n\r]*")
#: Something that may be a short list or object without others inside, and numbers and the like with commas.
_FLAT: Final = re.compile(r"[\[{][^\[\]{}]{0,512}[\]}]")
_PLAIN: Final = re.compile(r'(?:[^\[\]{}",]{0,32},){2,128}')
#: Reads one value.
_read: Final = json.JSONDecoder().raw_decode


def decoded(body: bytes) -> Generator[None, None, Any]:
    """Decode a document, in steps of a fraction of a millisecond; return it.

    Raises:
        ValueError: It is not JSON.
    """
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    #: The lists and objects that are not complete, and the names that the values in the objects will have.
    outer: list[Any] = []
    names: list[str] = []
    at, due = _after_space(text, 0), _STEP
    while True:
        if at >= due:
            due = at + _STEP
            yield
        value, end = _read_at_once(text, at)
        if end == at:
            value = [] if text[at] == "[" else {}
            at = _after_space(text, at + 1)
            if text[at : at + 1] != _closing(value):
                outer.append(value)
                at = _read_plain(text, at, value) if isinstance(value, list) else _read_name(text, at, names)
                continue
            end = at + 1
        at = _after_space(text, end)
        while outer and text[at : at + 1] == _closing(_put(outer[-1], names, value)):
            value, at = outer.pop(), _after_space(text, at + 1)
            if at >= due:
                due = at + _STEP
                yield
        if not outer:
            break
        if text[at : at + 1] != ",":
            raise ValueError("no comma between values")
        at = _after_space(text, at + 1)
        innermost = outer[-1]
        at = _read_plain(text, at, innermost) if isinstance(innermost, list) else _read_name(text, at, names)
    if at != len(text):
        raise ValueError("more follows the document")
    return value


def _read_at_once(text: str, at: int) -> tuple[Any, int]:
    """Read a value; return it and its end, or its beginning for a list or object that may be long."""
    if text[at : at + 1] not in ("[", "{"):
        return _read(text, at)
    flat = _FLAT.match(text, at)
    if flat is not None:
        try:
            value, length = _read(flat[0])
        except ValueError:
            # A string in it has a bracket.
            return None, at
        return value, at + length
    return None, at


def _read_plain(text: str, at: int, container: list[Any]) -> int:
    """Read values of a list that are numbers and the like, but not its last one; return where the next one begins."""
    plain = _PLAIN.match(text, at)
    if plain is None:
        return at
    container += json.loads(f"[{plain[0][:-1]}]")
    return _after_space(text, plain.end())


def _closing(container: Any) -> str:
    return "]" if isinstance(container, list) else "}"


def _put(container: Any, names: list[str], value: Any) -> Any:
    """Put a value into a list or object, which is returned."""
    if isinstance(container, list):
        container.append(value)
    else:
        container[names.pop()] = value
    return container


def _read_name(text: str, at: int, names: list[str]) -> int:
    """Read a name and the colon behind it; return where the value begins."""
    if text[at : at + 1] != '"':
        raise ValueError("no name in an object")
    name, at = _read(text, at)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError("no colon behind a name")
    names.append(name)
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
