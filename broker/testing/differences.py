"""Explains how two lists of messages differ, for failed assertions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import SequenceMatcher
from typing import Any, Final, cast

from leveret.broker.testing.messages import PublishedMessage

#: Bytes of a body, or characters of a value, that are shown.
_SHOWN: Final = 200
_ABSENT: Final = "nothing"


def explain(left: object, right: object) -> list[str] | None:
    """Return the lines that say how two messages, or lists of them, differ; None if they are something else.

    Args:
        left: What stands before ``==``.
        right: What stands behind it.
    """
    if isinstance(left, PublishedMessage) and isinstance(right, PublishedMessage):
        return ["the messages differ", *_differences(left, right)]
    one, other = _messages(left), _messages(right)
    if one is None or other is None or not (one or other):
        return None
    return [f"{_count(one)} == {_count(other)}", *_lines(one, other)]


def _messages(value: object) -> Sequence[PublishedMessage] | None:
    """Return a list of messages; None if it is something else."""
    is_list = isinstance(value, list | tuple) and all(isinstance(each, PublishedMessage) for each in value)
    return cast("Sequence[PublishedMessage]", value) if is_list else None


def _count(messages: Sequence[PublishedMessage]) -> str:
    return f"{len(messages)} {'message' if len(messages) == 1 else 'messages'}"


def _lines(left: Sequence[PublishedMessage], right: Sequence[PublishedMessage]) -> Iterator[str]:
    """Return a line for each message that is only on one side, and some for each that has changed."""
    matcher = SequenceMatcher(None, [_key(each) for each in left], [_key(each) for each in right], autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        changed = min(end - start, other_end - other_start)
        for at in range(changed):
            yield f"message {start + at} on the left, {other_start + at} on the right:"
            yield from _differences(left[start + at], right[other_start + at])
        yield from (f"only on the left, at {at}: {left[at]!r}" for at in range(start + changed, end))
        yield from (f"only on the right, at {at}: {right[at]!r}" for at in range(other_start + changed, other_end))


def _key(message: PublishedMessage) -> str:
    # Properties and headers cannot be hashed.
    return repr([getattr(message, each.name) for each in fields(message)])


def _differences(left: PublishedMessage, right: PublishedMessage) -> Iterator[str]:
    """Return a line for each thing in which two messages differ."""
    names = [each.name for each in fields(left) if each.name in {other.name for other in fields(right)}]
    for name in names:
        one, other = getattr(left, name), getattr(right, name)
        if one == other:
            continue
        if name == "body":
            yield from _body_differences(one, other)
        elif isinstance(one, dict):
            yield from _value_differences(name, one, other)
        else:
            yield f"  {name}: {_shown(one)} == {_shown(other)}"
    if type(left) is not type(right):
        yield f"  one is a {type(left).__name__}, the other a {type(right).__name__}"


def _body_differences(left: bytes, right: bytes) -> Iterator[str]:
    """Return lines for bodies: if both are objects in JSON, for each member that differs."""
    try:
        one, other = json.loads(left), json.loads(right)
    except ValueError:
        one = other = None
    if isinstance(one, dict) and isinstance(other, dict) and one != other:
        yield from _value_differences("body", one, other)
    else:
        yield f"  body: {_shown(left)} == {_shown(right)}"


def _value_differences(name: str, left: dict[str, Any], right: dict[str, Any]) -> Iterator[str]:
    keys: Sequence[str] = list(dict.fromkeys([*left, *right]))
    for key in keys:
        if key not in left or key not in right or left[key] != right[key]:
            one, other = (_shown(each[key]) if key in each else _ABSENT for each in (left, right))
            yield f"  {name}[{key!r}]: {one} == {other}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
