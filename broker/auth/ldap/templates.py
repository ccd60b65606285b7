"""Patterns with variables, such as ``cn=${vhost}-users,ou=groups,dc=example,dc=com``.

RabbitMQ fills in names as they are. Here a name cannot change what is around it: it is escaped in the DN or regular
expression that it becomes a part of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from leveret.broker.auth.ldap.errors import InvalidQuery, QueryFailed

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_.]+)\}")
#: The one variable that is a DN itself.
_DN: Final = "user_dn"
_DN_SPECIAL: Final = re.compile(r'[\\,=+"<>;#]')


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
