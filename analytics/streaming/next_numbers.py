"""How the offsets of a streaming query say the next number of each chain, and what was left of it.

With few chains, `next` has all numbers by chain. With more, `base` has the numbers of an earlier offset as a short
text, and `changed` those that differ from it. The text stays the same until many differ, so noting a batch from one of
thousands of queues takes no look at the others. An offset says everything by itself: nothing besides it has to outlive
a restart. Offsets of older versions have `next` only, and these versions fail where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from leveret.analytics.streaming.packed_rows import pack_rows, unpack_rows
from leveret.analytics.streaming.stream_chains import chain_key
from leveret.storage.format import Stream

#: Up to so many chains are written out.
_PLAIN_MAX: Final = 100
#: There is a new base when this part of its numbers has changed.
_CHANGED_PART: Final = 8
_SPILL: Final = "/spill"


class NextNumbers(Mapping[str, int]):
    """Next sequence numbers by chain. Unchangeable.

    Args:
        base: Numbers of an earlier offset.
        text: The same as a text; empty if there are none.
        changes: Numbers that differ from these, or are not among them.
    """

    __slots__ = ("_base", "_changes", "_text")

    def __init__(self, base: Mapping[str, int], text: str, changes: Mapping[str, int]) -> None:
        self._base = base
        self._text = text
        self._changes = changes

    def __getitem__(self, key: str) -> int:
        found = self._changes.get(key)
        return self._base[key] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        yield from (key for key in self._changes if key not in self._base)

    def __len__(self) -> int:
        return len(self._base) + sum(key not in self._base for key in self._changes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NextNumbers) and other._text == self._text:
            return self._changes == other._changes
        return isinstance(other, Mapping) and dict(self) == dict(other)

    def changed(self, updates: Mapping[str, int], exists: Callable[[int], bool]) -> NextNumbers:
        """Return the numbers with other ones for some chains.

        Args:
            updates: The other ones.
            exists: Returns whether there is a queue with a number, or events of it. Others may be left out.
        """
        changes = dict(self._changes)
        for key, number in updates.items():
            if self._base.get(key) == number:
                changes.pop(key, None)
            else:
                changes[key] = number
        if len(changes) <= max(_PLAIN_MAX, len(self._base) // _CHANGED_PART):
            return NextNumbers(self._base, self._text, changes)
        return _compact({**self._base, **changes}, exists)

    def to_json(self) -> dict[str, Any]:
        """Return what an offset says."""
        if not self._text:
            return {"next": dict(self._changes)}
        return {"base": self._text, "changed": dict(self._changes)}


def numbers_in(offset: Mapping[str, Any]) -> NextNumbers:
    """Return the next numbers of an offset.

    Raises:
        AnalyticsError: The offset is damaged, or a newer version has written it.
    """
    if "base" not in offset:
        return NextNumbers({}, "", offset["next"])
    return NextNumbers(_base_of(offset["base"]), offset["base"], offset["changed"])


def all_numbers(numbers: Mapping[str, int]) -> NextNumbers:
    """Return numbers that are those of no earlier offset."""
    return NextNumbers({}, "", {}).changed(numbers, lambda _: True)


def unread_in(offset: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return what an offset says about messages that were there and not read.

    Returns:
        The number after the last message, and how many there are, by chain of a durable stream.
    Raises:
        AnalyticsError: The offset is damaged, or a newer version has written it.
    """
    found = offset.get("unread", {})
    if not isinstance(found, str):
        return dict(found)
    return {f"{qid}/{priority}": [end, count] for qid, priority, end, count in unpack_rows(found, 4)}


def unread_to_json(unread: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return what an offset says about messages that were there and not read; see unread_in()."""
    if not unread:
        return {}
    if len(unread) <= _PLAIN_MAX:
        return {"unread": dict(unread)}
    return {"unread": pack_rows(sorted([*_store(key), *pair] for key, pair in unread.items()))}


def _compact(numbers: Mapping[str, int], exists: Callable[[int], bool]) -> NextNumbers:
    """Return numbers with a new base, without queues of which nothing is left."""
    keys = numbers.keys()
    stores = {_store(key) for key in keys}
    kept = {qid: exists(qid) for qid in {qid for qid, _ in stores}}
    # A row has the number of each stream and one more, or 0 if there is none.
    rows = [
        (*store, *(numbers.get(chain_key(*store, stream), -1) + 1 for stream in Stream))
        for store in sorted(stores)
        if kept[store[0]]
    ]
    if len(rows) * len(Stream) <= _PLAIN_MAX:
        return NextNumbers({}, "", {key: numbers[key] for key in keys if kept[_store(key)[0]]})
    text = pack_rows(rows)
    return NextNumbers(_base_of(text), text, {})


@lru_cache(maxsize=4)
def _base_of(text: str) -> Mapping[str, int]:
    return {
        chain_key(qid, priority, stream): number - 1
        for qid, priority, *found in unpack_rows(text, 2 + len(Stream))
        for stream, number in enumerate(found)
        if number
    }


def _store(key: str) -> tuple[int, int]:
    """Return the queue and the priority of a chain's key."""
    qid, priority = key.removesuffix(_SPILL).split("/")
    return int(qid), int(priority)
