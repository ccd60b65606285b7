"""Queries that decide what users may do, as RabbitMQ's LDAP plugin has them, and how they are written.

In YAML a query is a boolean or a mapping with one key, in Erlang's form a tuple: ``{in_group: DN}`` is
``{in_group, DN}``, ``{in_group: [DN, ATTRIBUTE]}`` is ``{in_group, DN, ATTRIBUTE}``.

They have patterns with variables, such as ``cn=${vhost}-users,ou=groups,dc=example,dc=com``. RabbitMQ fills in names as
they are. Here a name cannot change what is around it: it is escaped in the DN or regular expression that it becomes a
part of.

Source: https://www.rabbitmq.com/docs/ldap#authorisation
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import yaml

from leveret.broker.auth.ldap.erlang_text import parse_term
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern

#: The variables of each kind of query.
OF_TAGS: Final = frozenset(("username", "user_dn", "ad_domain", "ad_user"))
OF_VHOSTS: Final = OF_TAGS | {"vhost"}
OF_RESOURCES: Final = OF_VHOSTS | {"resource", "name", "permission"}
OF_TOPICS: Final = OF_RESOURCES | {"routing_key"}

_MEMBER: Final = "member"
_SCOPES: Final = {
    "subtree": True, "singlelevel": False, "single_level": False, "onelevel": False, "one_level": False,
}  # fmt: skip

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_.]+)\}")
#: The one variable that is a DN itself.
_DN: Final = "user_dn"
_DN_SPECIAL: Final = re.compile(r'[\\,=+"<>;#]')

Value: TypeAlias = "str | list[str]"


class InvalidQuery(ValueError):
    """A configured query is not one; the text says what is wrong."""


class QueryFailed(Exception):
    """A query has no answer: what it asks for does not exist, or must not be read. The text says which."""


# -- patterns ---------------------------------------------------------------------------------------------


class Template:
    """A pattern of a DN, a text or a regular expression.

    Args:
        text: The pattern.
        known: The variables that it may have.
        escape: Escapes the value of a variable; its arguments are name and value.
    Raises:
        InvalidQuery: It has other variables.
    """

    def __init__(self, text: str, known: Collection[str], escape: Callable[[str, str], str]) -> None:
        for name in _VARIABLE.findall(text):
            if name not in known:
                have = ", ".join(f"${{{each}}}" for each in sorted(known))
                raise InvalidQuery(f"${{{name}}} in {text!r} is not known here; there are {have}")
        self.text = text
        self._escape = escape

    def fill(self, variables: Mapping[str, str]) -> str:
        """Return the pattern with the values of its variables.

        Raises:
            QueryFailed: A variable has no value, as ``${ad_user}`` for a user without a domain.
        """
        return _VARIABLE.sub(lambda match: self._value(match[1], variables), self.text)

    def _value(self, name: str, variables: Mapping[str, str]) -> str:
        value = variables.get(name)
        if value is None:
            raise QueryFailed(f"there is no ${{{name}}} for this user")
        return self._escape(name, value)


def dn_template(text: str, known: Collection[str]) -> Template:
    """Return a pattern of a DN. Without ``=`` it is filled in as it is: users log in with DNs, or names of a domain."""
    return Template(text, known, _as_part_of_dn if "=" in text else _as_it_is)


def text_template(text: str, known: Collection[str]) -> Template:
    """Return a pattern of a text that is compared."""
    return Template(text, known, _as_it_is)


def regexp_template(text: str, known: Collection[str]) -> Template:
    """Return a pattern of a regular expression."""
    return Template(text, known, lambda name, value: re.escape(value))


def _as_it_is(name: str, value: str) -> str:
    return value


def _as_part_of_dn(name: str, value: str) -> str:
    return value if name == _DN else escape_dn(value)


def escape_dn(value: str) -> str:
    """Return a value as it stands in a DN (RFC 4514, 2.4)."""
    escaped = _DN_SPECIAL.sub(r"\\\g<0>", value).replace("\0", r"\00")
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    # A space that is last, unless it is the first one, which has its backslash.
    return escaped[:-1] + r"\ " if len(value) > 1 and escaped.endswith(" ") else escaped


# -- queries ----------------------------------------------------------------------------------------------


class Directory(Protocol):
    """What queries ask. All methods raise QueryFailed if the server answers with an error, and DirectoryError."""

    def exists(self, dn: str) -> bool:
        """Return whether there is an entry."""

    def has_value(self, dn: str, attribute: str, value: str) -> bool:
        """Return whether an attribute of an entry has a value."""

    def values(self, dn: str, attribute: str) -> list[str]:
        """Return the values of an attribute of an entry."""

    def is_in_nested(self, dn: str, group: str, attribute: str, is_subtree: bool) -> bool:
        """Return whether an entry is in a group, or in a group that is in it, to any depth.

        Args:
            attribute: The attribute of groups that has their members.
            is_subtree: Whether groups are searched below the base at any depth, or right below it.
        """


class Query(Protocol):
    """A condition."""

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        """Return whether it holds; raises QueryFailed and DirectoryError."""


class _Text(Protocol):
    def value(self, variables: Mapping[str, str], directory: Directory) -> Value: ...

    def shown(self, variables: Mapping[str, str]) -> str: ...


# -- conditions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Constant:
    is_true: bool

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        return self.is_true


@dataclass(frozen=True, slots=True)
class _Exists:
    dn: Template

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        return directory.exists(self.dn.fill(variables))


@dataclass(frozen=True, slots=True)
class _InGroup:
    dn: Template
    attribute: str

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        return directory.has_value(self.dn.fill(variables), self.attribute, variables["user_dn"])


@dataclass(frozen=True, slots=True)
class _InGroupNested:
    dn: Template
    attribute: str
    is_subtree: bool

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        group = self.dn.fill(variables)
        return directory.is_in_nested(variables["user_dn"], group, self.attribute, self.is_subtree)


@dataclass(frozen=True, slots=True)
class _Not:
    query: Query

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        return not self.query.holds(variables, directory)


@dataclass(frozen=True, slots=True)
class _And:
    queries: Sequence[Query]

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        try:
            return all(query.holds(variables, directory) for query in self.queries)
        except QueryFailed:
            # As in RabbitMQ, which says less then.
            return False


@dataclass(frozen=True, slots=True)
class _Or:
    queries: Sequence[Query]

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        failure: QueryFailed | None = None
        for query in self.queries:
            failure = None
            try:
                if query.holds(variables, directory):
                    return True
            except QueryFailed as failed:
                failure = failed
        if failure is not None:
            raise failure
        return False


@dataclass(frozen=True, slots=True)
class _For:
    """Chooses a query by the value of a variable; the first that fits."""

    cases: Sequence[tuple[str, str, Query]]

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        for name, value, query in self.cases:
            if variables.get(name) == value:
                return query.holds(variables, directory)
        raise QueryFailed("none of the cases of 'for' fits")


@dataclass(frozen=True, slots=True)
class _Equals:
    one: _Text
    other: _Text

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        try:
            one, other = (each.value(variables, directory) for each in (self.one, self.other))
        except QueryFailed:
            return False
        return one == other or (isinstance(other, list) and one in other) or (isinstance(one, list) and other in one)


@dataclass(frozen=True, slots=True)
class _Match:
    text: _Text
    pattern: _Text

    def holds(self, variables: Mapping[str, str], directory: Directory) -> bool:
        try:
            text, pattern = self.text.value(variables, directory), self.pattern.value(variables, directory)
        except QueryFailed:
            return False
        if isinstance(text, list) and isinstance(pattern, list):
            return False
        try:
            return any(Pattern(source).matches(each) for source in _list(pattern) for each in _list(text))
        except InvalidPattern as invalid:
            raise QueryFailed(str(invalid)) from None


def _list(value: Value) -> list[str]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True)
class _String:
    template: Template

    def value(self, variables: Mapping[str, str], directory: Directory) -> Value:
        return self.template.fill(variables)

    def shown(self, variables: Mapping[str, str]) -> str:
        return f"'{self.template.fill(variables)}'"


@dataclass(frozen=True, slots=True)
class _Attribute:
    dn: Template
    name: str

    def value(self, variables: Mapping[str, str], directory: Directory) -> Value:
        values = directory.values(self.dn.fill(variables), self.name)
        if not values:
            raise QueryFailed(f"there is no attribute {self.name}")
        return values[0] if len(values) == 1 else values

    def shown(self, variables: Mapping[str, str]) -> str:
        return f"attribute {self.name} of '{self.dn.fill(variables)}'"


# -- explaining -------------------------------------------------------------------------------------------


def deciding_part(query: Query, variables: Mapping[str, str], directory: Directory) -> str:
    """Return which part of a query decides it, for people.

    Raises:
        QueryFailed: It has no answer.
        DirectoryError: The server cannot be asked.
    """
    match query:
        case _Not():
            return f"not: {deciding_part(query.query, variables, directory)}"
        case _And():
            for part in query.queries:
                try:
                    if not part.holds(variables, directory):
                        return f"and: {deciding_part(part, variables, directory)}"
                except QueryFailed as failed:
                    return f"and: {failed}"
            return "and: all parts are true"
        case _Or():
            said = "no part is true"
            for part in query.queries:
                said = "no part is true"
                try:
                    if part.holds(variables, directory):
                        return f"or: {deciding_part(part, variables, directory)}"
                except QueryFailed as failed:
                    said = str(failed)
            return f"or: {said}"
        case _For():
            for name, value, part in query.cases:
                if variables.get(name) == value:
                    return f"for {name} {value}: {deciding_part(part, variables, directory)}"
    return f"{_condition(query, variables)} is {'true' if query.holds(variables, directory) else 'false'}"


def _condition(query: Query, variables: Mapping[str, str]) -> str:
    match query:
        case _Exists():
            return f"exists '{query.dn.fill(variables)}'"
        case _InGroup():
            return f"in_group '{query.dn.fill(variables)}' ({query.attribute})"
        case _InGroupNested():
            return f"in_group_nested '{query.dn.fill(variables)}' ({query.attribute})"
        case _Equals():
            return f"equals {query.one.shown(variables)}, {query.other.shown(variables)}"
        case _Match():
            return f"match {query.text.shown(variables)}, {query.pattern.shown(variables)}"
    return "constant" if isinstance(query, _Constant) else "for"


# -- reading ----------------------------------------------------------------------------------------------


def read_query(written: object, known: Collection[str]) -> Query:
    """Return a query as it is configured.

    Args:
        written: A boolean, a mapping, or a text of either in YAML or of an Erlang term.
        known: The variables that it may have.
    Raises:
        InvalidQuery: It is none.
    """
    return _Reader(known).query(_term(written))


def read_tag_queries(written: object) -> dict[str, Query]:
    """Return the queries of tags, as they are configured: a mapping, or a text of it, or Erlang's list of pairs.

    Raises:
        InvalidQuery: One of them is none.
    """
    term = _parsed(written) if isinstance(written, str) else written
    if isinstance(term, list) and all(isinstance(each, tuple) and len(each) == 2 for each in term):
        term = dict(term)
    if not isinstance(term, Mapping):
        raise InvalidQuery("give a mapping of tags to queries")
    found = {}
    for tag, query in term.items():
        try:
            found[str(tag)] = read_query(query, OF_TAGS)
        except InvalidQuery as wrong:
            raise InvalidQuery(f"{tag}: {wrong}") from None
    return found


def _parsed(text: str) -> Any:
    try:
        return parse_term(text)
    except ValueError as wrong:
        reason = str(wrong)
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = text
    # A tuple without quotes is a mapping without values to YAML.
    if isinstance(found, str) or (isinstance(found, dict) and None in found.values()):
        raise InvalidQuery(reason)
    return found


def _term(written: object) -> Any:
    """Return a query as a tuple, whatever form it has."""
    if isinstance(written, str) and written.lstrip()[:1] in ("{", "["):
        written = _parsed(written)
    if isinstance(written, bool):
        return ("constant", written)
    if not isinstance(written, Mapping):
        return written
    if len(written) != 1:
        raise InvalidQuery(f"a query is a mapping with one key, not with {sorted(map(str, written))}")
    ((name, value),) = written.items()
    if name in ("and", "or", "for"):
        return (name, value)
    return (name, *value) if isinstance(value, list) else (name, value)


class _Reader:
    def __init__(self, known: Collection[str]) -> None:
        self._known = known

    def query(self, written: Any) -> Query:
        term = _term(written)
        match term:
            case ("constant", bool() as is_true):
                return _Constant(is_true)
            case ("exists", str() as dn):
                return _Exists(self._dn(dn))
            case ("in_group", str() as dn):
                return _InGroup(self._dn(dn), _MEMBER)
            case ("in_group", str() as dn, str() as attribute):
                return _InGroup(self._dn(dn), attribute)
            case ("in_group_nested", str() as dn):
                return _InGroupNested(self._dn(dn), _MEMBER, True)
            case ("in_group_nested", str() as dn, str() as attribute):
                return _InGroupNested(self._dn(dn), attribute, True)
            case ("in_group_nested", str() as dn, str() as attribute, str() as scope) if scope in _SCOPES:
                return _InGroupNested(self._dn(dn), attribute, _SCOPES[scope])
            case ("not", query):
                return _Not(self.query(query))
            case ("and", [*queries]):
                return _And([self.query(query) for query in queries])
            case ("or", [*queries]):
                return _Or([self.query(query) for query in queries])
            case ("for", dict() as cases):
                return _For([case for name, of in cases.items() for case in self._cases_of(name, of)])
            case ("for", [*cases]):
                return _For([self._case(case) for case in cases])
            case ("equals", one, other):
                return _Equals(self._text(one, is_pattern=False), self._text(other, is_pattern=False))
            case ("match", text, pattern):
                return _Match(self._text(text, is_pattern=False), self._text(pattern, is_pattern=True))
        raise InvalidQuery(f"{_shown(term)} is not a query")

    def _cases_of(self, name: str, of: object) -> list[tuple[str, str, Query]]:
        if not isinstance(of, Mapping):
            raise InvalidQuery(f"for: {name}: give a mapping of values to queries")
        return [self._case((name, value, query)) for value, query in of.items()]

    def _case(self, case: object) -> tuple[str, str, Query]:
        match case:
            case (str() as name, str() as value, query):
                if name not in self._known:
                    raise InvalidQuery(f"for: {name!r} is not known here; there are {', '.join(sorted(self._known))}")
                return name, value, self.query(query)
        raise InvalidQuery(f"for: {_shown(case)} is not a variable, a value and a query")

    def _text(self, written: Any, is_pattern: bool) -> _Text:
        term = written if isinstance(written, str) else _term(written)
        match term:
            case str() as text:
                return self._string(text, is_pattern)
            case ("string", str() as text):
                return self._string(text, is_pattern)
            case ("attribute", str() as dn, str() as name):
                return _Attribute(self._dn(dn), name)
        raise InvalidQuery(f"{_shown(term)} is not a text, nor {{attribute: [DN, NAME]}}")

    def _string(self, text: str, is_pattern: bool) -> _String:
        if not is_pattern:
            return _String(text_template(text, self._known))
        template = regexp_template(text, self._known)
        try:
            Pattern(template.fill(dict.fromkeys(self._known, "x")))
        except InvalidPattern as invalid:
            raise InvalidQuery(str(invalid)) from None
        return _String(template)

    def _dn(self, text: str) -> Template:
        return dn_template(text, self._known)


def _shown(term: object) -> str:
    """Return a term for people, a tuple as Erlang has it."""
    shown = f"{{{', '.join(map(str, term))}}}" if isinstance(term, tuple) else repr(term)
    return shown if len(shown) <= 100 else f"{shown[:100]}..."
