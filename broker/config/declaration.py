"""How options are declared: as the fields of frozen dataclasses, each with all that is known about it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from leveret.broker.config.kinds import Kind

T = TypeVar("T")

_OPTION: Final = "option"
_GROUP: Final = "group"
_ENVIRONMENT_PREFIX: Final = "LEVERET_"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: Dotted, as in the file and after `--set`; empty until its dataclass is known.
        kind: Its type and range.
        default: Its value when it is not given.
        help: What it does, one sentence.
        flag: Its own command-line flag; empty where there is only `--set`.
        metavar: How the flag's value is called in the help text.
        secret: Whether its value stays out of messages.
        reloadable: Whether SIGHUP puts another value in force.
    """

    name: str
    kind: Kind[Any]
    default: object
    help: str
    flag: str
    metavar: str
    secret: bool
    reloadable: bool

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return _ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()


def option(
    kind: Kind[T],
    default: T,
    help: str,
    *,
    flag: str = "",
    metavar: str = "VALUE",
    secret: bool = False,
    reloadable: bool = False,
) -> T:
    """Declare one option as a field of a dataclass; its name is the field's.

    Args:
        kind: Its type and range.
        default: Its value when it is not given.
        help: What it does, one sentence.
        flag: Its own command-line flag; empty for none.
        metavar: How the flag's value is called in the help text.
        secret: Whether its value stays out of messages.
        reloadable: Whether SIGHUP puts another value in force.

    Returns:
        The dataclass field, which type checkers take for its default.
    """
    declared = Option("", kind, default, help, flag, metavar, secret, reloadable)
    if isinstance(default, Mapping):
        # dataclasses refuse a default that can be changed; each Settings gets its own.
        factory = partial(copy.copy, default)
        return cast("T", dataclasses.field(default_factory=factory, metadata={_OPTION: declared}))
    return dataclasses.field(default=default, metadata={_OPTION: declared})


def group(settings: type[T]) -> T:
    """Declare a group of options; the field's name and a dot come before the names of its own.

    Args:
        settings: The dataclass of the group.

    Returns:
        The dataclass field, which type checkers take for its default.
    """
    return dataclasses.field(default_factory=settings, metadata={_GROUP: settings})


def declared(settings: type[Any], prefix: str = "") -> dict[str, Option]:
    """List the options of a dataclass.

    Args:
        settings: The dataclass.
        prefix: What comes before their names, with its dot.

    Returns:
        The options by dotted name, in the order of their declaration.
    """
    options = {}
    for field in dataclasses.fields(settings):
        name = prefix + field.name
        if _GROUP in field.metadata:
            options.update(declared(field.metadata[_GROUP], f"{name}."))
        else:
            options[name] = dataclasses.replace(field.metadata[_OPTION], name=name)
    return options


def build(settings: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    """Make the settings out of option values.

    Args:
        settings: The dataclass.
        values: Values by dotted name; a missing one is the default.
        prefix: What comes before their names, with its dot.

    Returns:
        The settings.
    """
    arguments = {}
    for field in dataclasses.fields(cast("Any", settings)):
        name = prefix + field.name
        if _GROUP in field.metadata:
            arguments[field.name] = build(field.metadata[_GROUP], values, f"{name}.")
        elif name in values:
            arguments[field.name] = values[name]
    return settings(**arguments)


def values(settings: object, prefix: str = "") -> dict[str, object]:
    """Take settings apart again.

    Args:
        settings: What build() made.
        prefix: What comes before the names, with its dot.

    Returns:
        All values by dotted name, in the order of declaration.
    """
    found: dict[str, object] = {}
    for field in dataclasses.fields(cast("Any", settings)):
        value = getattr(settings, field.name)
        if _GROUP in field.metadata:
            found.update(values(value, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = value
    return found
