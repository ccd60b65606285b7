"""Declarations of options: fields of frozen dataclasses with type, default, help and flags."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leveret.broker.config import kinds
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.kinds import Kind
from leveret.storage.url_secrets import MASK

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Group = TypeVar("Group", bound="DataclassInstance")

_OPTION: Final = "option"
_GROUP: Final = "group"
_ENVIRONMENT_PREFIX: Final = "LEVERET_"


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        name: Dotted name as in the file and after `--set`; empty until its dataclass is known.
        kind: Type and range.
        default: Value of an option that is not set.
        help: Description in one sentence.
        flag: Command-line flag; empty if there is only `--set`.
        metavar: Name of the flag's value in the help text.
        secret: Whether error texts and printed configurations hide its value.
        reloadable: Whether SIGHUP applies a new value.
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
        """Name of the environment variable that sets the option."""
        return _ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()

    @property
    def has_secrets(self) -> bool:
        """Whether its value is a secret, or may contain one."""
        return self.secret or self.kind.masked is not None

    def shown(self, value: Any) -> Any:
        """Return a value for people to read, with what is secret masked."""
        if self.secret and value:
            return MASK
        return value if self.kind.masked is None else self.kind.masked(value)


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
    """Declare an option as a field of a dataclass; the field's name is the option's. For the arguments see Option.

    Returns:
        The dataclass field, typed as its default.
    """
    declared = Option("", kind, default, help, flag, metavar, secret, reloadable)
    if isinstance(default, Mapping):
        # dataclasses refuse a mutable default; each Settings gets a copy.
        factory = partial(copy.copy, default)
        return dataclasses.field(default_factory=factory, metadata={_OPTION: declared}, repr=not secret)
    return dataclasses.field(default=default, metadata={_OPTION: declared}, repr=not declared.has_secrets)


def switch_option(help: str, *, default: bool = False, reloadable: bool = False) -> bool:
    """Declare an option that is true or false; see option()."""
    return option(kinds.boolean(), default, help, reloadable=reloadable)


def text_option(help: str, *, default: str = "", secret: bool = False) -> str:
    """Declare an option that is a text, which may be empty; see option()."""
    return option(kinds.text(empty=True), default, help, secret=secret)


def optional_text_option(help: str) -> str | None:
    """Declare an option that is a text, or none; see option()."""
    return option(kinds.optional(kinds.text(), "none"), None, help)


def password_option(*, reloadable: bool = False) -> str | None:
    """Declare the option of a key file's password; see option()."""
    kind, text = kinds.optional(kinds.text()), "Password of the key file, if it is encrypted."
    return option(kind, None, text, secret=True, reloadable=reloadable)


def file_option(help: str, *, reloadable: bool = False) -> Path | None:
    """Declare an option that is the path of a file or directory, or none; see option()."""
    return option(kinds.optional(kinds.path(), "none"), None, help, reloadable=reloadable)


def group(settings: type[T]) -> T:
    """Declare a group of options. The field's name and a dot are the prefix of their names.

    Returns:
        The dataclass field, typed as its default.
    """
    return dataclasses.field(default_factory=settings, metadata={_GROUP: settings})


def declared(settings: type[Any], prefix: str = "") -> dict[str, Option]:
    """Return the options of a dataclass by dotted name, in the order of their declaration; the prefix has its dot."""
    options = {}
    for field in dataclasses.fields(settings):
        name = prefix + field.name
        if _GROUP in field.metadata:
            options.update(declared(field.metadata[_GROUP], f"{name}."))
        else:
            options[name] = dataclasses.replace(field.metadata[_OPTION], name=name)
    return options


def build(settings: type[Group], values: Mapping[str, object], prefix: str = "") -> Group:
    """Build the settings from option values.

    Args:
        values: Values by dotted name; a missing one is the default.
    """
    arguments = {}
    for field in dataclasses.fields(settings):
        name = prefix + field.name
        if _GROUP in field.metadata:
            arguments[field.name] = build(field.metadata[_GROUP], values, f"{name}.")
        elif name in values:
            arguments[field.name] = values[name]
    return settings(**arguments)


def option_values(settings: DataclassInstance, prefix: str = "") -> dict[str, object]:
    """Return the values of all options by dotted name, in the order of their declaration; the prefix has its dot."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if _GROUP in field.metadata:
            found.update(option_values(value, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = value
    return found


@dataclass(frozen=True, slots=True)
class RawSetting:
    """An option value before validation.

    Attributes:
        name: Dotted name of the option, not yet validated.
        value: Value from YAML, or text.
        origin: Origin for error texts: file and line, environment variable or flag.
        error: Exception class to raise if the setting is invalid.
    """

    name: str
    value: object
    origin: str
    error: type[ConfigError] = ConfigError
