"""The exchange types of AMQP: direct, fanout, topic and headers, and the default exchange."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.terms import Term, format_value, to_term
from leveret.protocol.faults import access_refused, precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, FieldValue, find


class DirectExchange(Exchange):
    """Routes a message by its exact routing key, which may be empty.

    Spec: AMQP 0-9-1 section 3.1.3.1.
    """

    __slots__ = ("_by_key",)

    type_name: ClassVar[str] = "direct"
    description: ClassVar[str] = "AMQP direct exchange, as per the AMQP specification"

    def _create_index(self) -> None:
        self._by_key: dict[str, dict[BindingIdentity, Destination]] = {}

    def _add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding.identity] = binding.destination

    def _remove(self, binding: Binding) -> None:
        bound = self._by_key[binding.routing_key]
        del bound[binding.identity]
        if not bound:
            del self._by_key[binding.routing_key]

    def destinations(self, routing_key: str, headers: FieldTable) -> Collection[Destination]:
        """Return the destinations bound with exactly this key."""
        bound = self._by_key.get(routing_key)
        return tuple(bound.values()) if bound is not None else ()


class FanoutExchange(Exchange):
    """Routes every message to all destinations and ignores the routing key.

    Spec: AMQP 0-9-1 section 3.1.3.2.
    """

    __slots__ = ()

    type_name: ClassVar[str] = "fanout"
    description: ClassVar[str] = "AMQP fanout exchange, as per the AMQP specification"
    uses_keys: ClassVar[bool] = False

    # No index is needed.

    def _create_index(self) -> None:
        pass

    def _add(self, binding: Binding) -> None:
        pass

    def _remove(self, binding: Binding) -> None:
        pass

    def destinations(self, routing_key: str, headers: FieldTable) -> list[Destination]:
        """Return all destinations."""
        return [binding.destination for binding in self.bindings.values()]


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
    """Yield the destinations if very many nodes have to be visited, with a None after each step."""
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


_ALL: Final = b"all"
#: Values of x-match, and whether headers that start with ``x-`` are compared.
_X_MATCH_VALUES: Final = {_ALL: False, b"any": False, b"all-with-x": True, b"any-with-x": True}

#: Bindings that are matched in one step.
_MATCH_STEP: Final = 500

#: Key of a header: its name, and the number of earlier headers of that name in the table.
_Header: TypeAlias = tuple[str, int]


#: What a header must be: its key, and its term; None for any value.
_Condition: TypeAlias = "tuple[_Header, Term | None]"

#: Condition of the bindings that match every message.
_ALWAYS: Final[_Condition] = ("", -1), None


class _Pattern:
    """The arguments of a binding, prepared for matching.

    Attributes:
        conditions: What headers must be.
        needs_all: Whether all conditions must hold; otherwise one is enough.
        indexed: Those of the conditions by which the exchange finds it.
    """

    __slots__ = ("conditions", "destination", "indexed", "needs_all")

    def __init__(self, arguments: FieldTable, destination: Destination) -> None:
        x_match = _x_match(arguments)
        with_x = _X_MATCH_VALUES[x_match]
        self.destination = destination
        self.needs_all = x_match.startswith(_ALL)
        self.conditions: list[_Condition] = [
            (header, None if field.kind == "V" else to_term(field))
            for header, field in _number(arguments)
            if header[0] != "x-match" and (with_x or not header[0].startswith("x-"))
        ]
        self.indexed: list[_Condition] = []

    def matches(self, headers: Mapping[_Header, Term]) -> bool:
        """Check whether a message with these headers, which meets one of the indexed conditions, matches."""
        if self.needs_all:
            for header, term in self.conditions:
                present = headers.get(header)
                if present is None or (term is not None and term != present):
                    return False
        return True


class HeadersExchange(Exchange):
    """Routes a message by comparing its headers to the arguments of bindings.

    With x-match ``all``, the default, all arguments must match a header, with ``any`` one is enough. Arguments that
    start with ``x-`` are ignored, except with ``all-with-x`` and ``any-with-x``. Numbers are compared by value, and a
    void argument matches any value. Duplicate names are compared in their order.

    Bindings are found by what one header must be, so that a message is compared with few of them.

    Spec: AMQP 0-9-1 section 3.1.3.4; the forms with x are RabbitMQ extensions.
    """

    __slots__ = ("_index", "_patterns")

    type_name: ClassVar[str] = "headers"
    description: ClassVar[str] = "AMQP headers exchange, as per the AMQP specification"
    uses_keys: ClassVar[bool] = False

    def _create_index(self) -> None:
        self.uses_headers = True
        self._patterns: dict[BindingIdentity, _Pattern] = {}
        self._index: dict[_Condition, dict[_Pattern, None]] = {}

    def _add(self, binding: Binding) -> None:
        _check_x_match(binding.arguments)
        pattern = self._patterns[binding.identity] = _Pattern(binding.arguments, binding.destination)
        pattern.indexed = self._to_index(pattern)
        for condition in pattern.indexed:
            self._index.setdefault(condition, {})[pattern] = None

    def _remove(self, binding: Binding) -> None:
        pattern = self._patterns.pop(binding.identity)
        for condition in pattern.indexed:
            bucket = self._index[condition]
            del bucket[pattern]
            if not bucket:
                del self._index[condition]

    def _to_index(self, pattern: _Pattern) -> list[_Condition]:
        """Return the conditions by which a new binding is to be found: of ``all`` the one that fewest others have."""
        if not pattern.needs_all:
            return list(dict.fromkeys(pattern.conditions))
        if not pattern.conditions:
            return [_ALWAYS]
        return [min(pattern.conditions, key=lambda condition: len(self._index.get(condition, ())))]

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Find the destinations whose arguments match the headers."""
        present = {header: to_term(field) for header, field in _number(headers)}
        candidates = list(self._index.get(_ALWAYS, ()))
        index = self._index
        for header, term in present.items():
            candidates += index.get((header, term), ())
            candidates += index.get((header, None), ())
        if len(candidates) <= _MATCH_STEP:
            return [pattern.destination for pattern in candidates if pattern.matches(present)]
        return _match_headers_in_steps(candidates, present)


def _match_headers_in_steps(
    patterns: Sequence[_Pattern], present: Mapping[_Header, Term]
) -> Iterator[Destination | None]:
    """Yield the destinations of very many bindings, with a None after each step."""
    for start in range(0, len(patterns), _MATCH_STEP):
        for pattern in patterns[start : start + _MATCH_STEP]:
            if pattern.matches(present):
                yield pattern.destination
        yield None


def _x_match(arguments: FieldTable) -> bytes:
    field = find(arguments, "x-match")
    form: bytes = _ALL if field is None else field.value
    return form


def _check_x_match(arguments: FieldTable) -> None:
    """Validate the x-match argument.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, "x-match")
    if field is None:
        return
    if field.kind != "S":
        raise precondition_failed(
            f"Invalid x-match field type {TYPE_NAMES[field.kind]} (value {format_value(field)}); expected longstr"
        )
    if field.value not in _X_MATCH_VALUES:
        raise precondition_failed(
            f"Invalid x-match field value {format_value(field)}; expected all, any, all-with-x, or any-with-x"
        )


def _number(table: FieldTable) -> Iterator[tuple[_Header, FieldValue]]:
    """Yield the entries of a table, with keys that distinguish duplicate names."""
    counts: dict[str, int] = {}
    for key, field in table:
        count = counts.get(key, 0)
        counts[key] = count + 1
        yield (key, count), field


#: Name of the default exchange.
DEFAULT_EXCHANGE = ""


class DefaultExchange(Exchange):
    """Routes a message to the queue whose name is the routing key. It has no explicit bindings.

    Args:
        queues: The queues of the virtual host by name; must be kept up to date by the caller.
        since: Time of its creation, in seconds since 1970.
    Spec: AMQP 0-9-1 section 3.1.3.1.
    """

    __slots__ = ("_queues",)

    type_name: ClassVar[str] = "direct"
    description: ClassVar[str] = DirectExchange.description

    def __init__(self, vhost_name: str, queues: Mapping[str, Queue], since: int = 0) -> None:
        super().__init__(vhost_name, DEFAULT_EXCHANGE, since=since)
        self._queues = queues

    def _create_index(self) -> None:
        pass

    def _add(self, binding: Binding) -> None:
        refuse_default(DEFAULT_EXCHANGE)

    def _remove(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings to remove")

    def destinations(self, routing_key: str, headers: FieldTable) -> Sequence[Destination]:
        """Return the queue whose name is the routing key, if it exists."""
        queue = self._queues.get(routing_key)
        return () if queue is None else (queue,)


def refuse_default(name: str) -> None:
    """Refuse to declare, delete, bind or unbind the default exchange.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
