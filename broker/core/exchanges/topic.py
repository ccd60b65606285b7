"""The topic exchange: patterns of words, kept in a trie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.protocol.field_table import FieldTable

if TYPE_CHECKING:
    from leveret.broker.core.bindings import Binding, BindingIdentity, Destination

_ONE_WORD: Final = "*"
_ANY_WORDS: Final = "#"

#: Nodes that are looked at in one step.
_STEP: Final = 1000


class _Node:
    """A node of the trie: the patterns that start with the words on the way to it."""

    __slots__ = ("bound", "children", "repeats")

    def __init__(self, word: str = "") -> None:
        #: More words may pass without leaving this node.
        self.repeats = word == _ANY_WORDS
        self.children: dict[str, _Node] = {}
        #: Bindings whose pattern ends here.
        self.bound: dict[BindingIdentity, Destination] = {}


class TopicExchange(Exchange):
    """Sends a message to where a pattern is bound that its routing key matches.

    Keys and patterns are words with dots between them; the empty string has no word, ``.`` has two empty ones. In a
    pattern, the word ``*`` stands for one word and ``#`` for any number of them; in a key they are plain words.

    Spec: AMQP 0-9-1 section 3.1.3.3.
    """

    __slots__ = ("_root",)

    type_name: ClassVar[str] = "topic"

    def _create_index(self) -> None:
        self._root = _Node()

    def _add(self, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.routing_key):
            following = node.children.get(word)
            if following is None:
                following = node.children[word] = _Node(word)
            node = following
        node.bound[binding.identity] = binding.destination

    def _remove(self, binding: Binding) -> None:
        node = self._root
        way: list[tuple[_Node, str]] = []
        for word in _words(binding.routing_key):
            way.append((node, word))
            node = node.children[word]
        del node.bound[binding.identity]
        while way and not node.bound and not node.children:
            node, word = way.pop()
            del node.children[word]

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Destinations whose pattern matches the key.

        All nodes that the words so far may have led to are advanced together, each one once: the time taken is
        bounded by words times nodes that match, however many ``#`` a pattern has.
        """
        reached: dict[_Node, None] = {}
        _enter(reached, self._root)
        words = _words(routing_key)
        looks = 0
        for place, word in enumerate(words):
            looks += len(reached)
            if looks > _STEP:
                return _match_slowly(reached, words[place:])
            before, reached = reached, {}
            for node in before:
                _advance(reached, node, word)
            if not reached:
                return ()
        return [destination for node in reached for destination in node.bound.values()]


def _match_slowly(reached: dict[_Node, None], words: Sequence[str]) -> Iterator[Destination | None]:
    """The destinations where very many nodes have to be looked at, with a None after each step.

    Args:
        reached: Nodes that the words so far may have led to.
        words: Those that follow.
    """
    looks = 0
    for word in words:
        before, reached = reached, {}
        for node in before:
            _advance(reached, node, word)
            looks += 1
            if looks % _STEP == 0:
                yield None
    for node in reached:
        yield from tuple(node.bound.values())


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _advance(reached: dict[_Node, None], node: _Node, word: str) -> None:
    """Add the nodes that one more word leads to from a node."""
    if node.repeats:
        _enter(reached, node)
    for way in (word, _ONE_WORD):
        following = node.children.get(way)
        if following is not None:
            _enter(reached, following)


def _enter(reached: dict[_Node, None], node: _Node | None) -> None:
    """Add a node and those that no word leads to from it: behind ``#``, ``#.#`` and so on."""
    while node is not None and node not in reached:
        reached[node] = None
        node = node.children.get(_ANY_WORDS)
