"""The topic exchange: matches routing keys against patterns in a trie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.protocol.field_table import FieldTable

_ONE_WORD: Final = "*"
_ANY_WORDS: Final = "#"

#: Nodes that are visited in one step.
_STEP: Final = 1000


class _Node:
    """A node of the trie: all patterns that start with the words on the path to it."""

    __slots__ = ("bound", "children", "repeats")

    def __init__(self, word: str = "") -> None:
        #: Whether any number of further words match at this node (``#``).
        self.repeats = word == _ANY_WORDS
        self.children: dict[str, _Node] = {}
        #: Destinations of bindings whose pattern ends here.
        self.bound: dict[BindingIdentity, Destination] = {}


class TopicExchange(Exchange):
    """Routes a message by matching its routing key against the patterns of bindings.

    Keys and patterns are words separated by dots. The empty string has no words, ``.`` has two empty words. In a
    pattern ``*`` matches one word and ``#`` any number of words; in a key they are ordinary words.

    Spec: AMQP 0-9-1 section 3.1.3.3.
    """

    __slots__ = ("_root",)

    type_name: ClassVar[str] = "topic"
    description: ClassVar[str] = "AMQP topic exchange, as per the AMQP specification"

    def _create_index(self) -> None:
        self._root = _Node()

    def _add(self, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.routing_key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(word)
            node = child
        node.bound[binding.identity] = binding.destination

    def _remove(self, binding: Binding) -> None:
        node = self._root
        path: list[tuple[_Node, str]] = []
        for word in _words(binding.routing_key):
            path.append((node, word))
            node = node.children[word]
        del node.bound[binding.identity]
        while path and not node.bound and not node.children:
            node, word = path.pop()
            del node.children[word]

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Find the destinations whose pattern matches the key.

        The nodes reached by the words so far are advanced together, each one once. So the time is bounded by words
        times matching nodes, even for patterns with many ``#``.
        """
        reached: dict[_Node, None] = {}
        _enter(reached, self._root)
        words = _words(routing_key)
        visits = 0
        for place, word in enumerate(words):
            visits += len(reached)
            if visits > _STEP:
                return _match_in_steps(reached, words[place:])
            before, reached = reached, {}
            for node in before:
                _advance(reached, node, word)
            if not reached:
                return ()
        return [destination for node in reached for destination in node.bound.values()]


def _match_in_steps(reached: dict[_Node, None], words: Sequence[str]) -> Iterator[Destination | None]:
    """Yield the destinations if very many nodes have to be visited, with a None after each step.

    Args:
        reached: Nodes reached by the words so far.
        words: The remaining words.
    """
    visits = 0
    for word in words:
        before, reached = reached, {}
        for node in before:
            _advance(reached, node, word)
            visits += 1
            if visits % _STEP == 0:
                yield None
    for node in reached:
        yield from tuple(node.bound.values())


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _advance(reached: dict[_Node, None], node: _Node, word: str) -> None:
    """Add the nodes that are reached from a node by one word."""
    if node.repeats:
        _enter(reached, node)
    for edge in (word, _ONE_WORD):
        child = node.children.get(edge)
        if child is not None:
            _enter(reached, child)


def _enter(reached: dict[_Node, None], node: _Node | None) -> None:
    """Add a node, and those that are reached from it without a word: through ``#``, ``#.#`` and so on."""
    while node is not None and node not in reached:
        reached[node] = None
        node = node.children.get(_ANY_WORDS)
