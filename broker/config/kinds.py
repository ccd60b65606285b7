"""Types of options: parsing and allowed values.

A kind parses values from a YAML file, and text from the environment or the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from leveret.protocol.units import DURATION_UNITS, parse_duration, parse_size, whole
from leveret.storage.url_secrets import MASK, mask_url

T = TypeVar("T")

_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_URL_PATH: Final = re.compile(r"[A-Za-z0-9._~/-]*")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of options.

    Attributes:
        read: Converts a YAML value or text to the option's value; raises ValueError for a value that is not allowed.
        allowed: Description of the allowed values.
        unit: Unit of the value; empty without one.
        masked: Returns a value for people to read, without the secrets in it; None if it can have none.
    """

    read: Callable[[object], T]
    allowed: str
    unit: str = ""
    masked: Callable[[T], T] | None = None


@dataclass(frozen=True, slots=True)
class ProductVersion:
    """A product and its version.

    Attributes:
        product: Name, for example `RabbitMQ`.
        version: Version, for example `3.10.8`.
    """

    product: str
    version: str

    def __str__(self) -> str:
        return f"{self.product} {self.version}"


@dataclass(frozen=True, slots=True)
class SyncRule:
    """When written data are synced to the disk.

    Attributes:
        mode: `always`, `interval` or `off`.
        interval: Minimum time between two syncs in milliseconds; 0 unless the mode is `interval`.
    """

    mode: str
    interval: int = 0

    def __str__(self) -> str:
        return f"interval({self.interval})" if self.interval else self.mode


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and port to listen on.

    Attributes:
        host: Address or name; empty for the addresses of the option `host`.
        port: 0..65535; 0 for a free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.host:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(*, empty: bool = False) -> Kind[str]:
    """Return the kind of strings that are not empty, or may be."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not (value or empty):
            raise ValueError(value)
        return value

    return Kind(read, "a string" if empty else "a string that is not empty")


def location() -> Kind[str]:
    """Return the kind of paths and URLs; a URL may contain a password. May be empty."""
    return replace(text(empty=True), masked=mask_url)


def url_path() -> Kind[str]:
    """Return the kind of URL paths without escapes, with or without slashes at the ends. May be empty."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not _URL_PATH.fullmatch(value) or {".", ".."} & {*value.split("/")}:
            raise ValueError(value)
        return value

    return Kind(read, "a path of letters, digits, -, ., _, ~ and /")


def choice(*words: str) -> Kind[str]:
    """Return the kind of enumerated words, case-insensitive."""

    def read(value: object) -> str:
        # YAML parses a release of two numbers as one, and the words true and false as booleans.
        text = str(value) if isinstance(value, float | bool) else value
        for word in words:
            if isinstance(text, str) and text.casefold() == word.casefold():
                return word
        raise ValueError(value)

    return Kind(read, "one of " + ", ".join(words))


def boolean() -> Kind[bool]:
    """Return the kind of booleans."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.casefold() in _BOOLEANS:
            return _BOOLEANS[value.casefold()]
        raise ValueError(value)

    return Kind(read, "true or false")


def sync_rule() -> Kind[SyncRule]:
    """Return the kind of sync rules."""

    def read(value: object) -> SyncRule:
        # YAML parses off as false.
        word = "off" if value is False else str(value).casefold().strip()
        if word in ("always", "off"):
            return SyncRule(word)
        if not word.startswith("interval(") or not word.endswith(")"):
            raise ValueError(value)
        interval = whole(parse_duration(word[9:-1], "ms"))
        if not 1 <= interval <= 3_600_000:
            raise ValueError(value)
        return SyncRule("interval", interval)

    return Kind(read, "always, interval(T) with T 1..3600000 ms, or off")


def integer(low: int, high: int) -> Kind[int]:
    """Return the kind of integers in a range."""
    return Kind(partial(_read_whole, low, high, _parse_digits), f"a whole number {low}..{high}")


def size(low: int, high: int) -> Kind[int]:
    """Return the kind of sizes in bytes, with or without a unit."""
    allowed = f"{low}..{high} bytes, as a number or like 64MiB, 1GB, 512kB"
    return Kind(partial(_read_whole, low, high, parse_size), allowed, "bytes")


def duration(low: int, high: int, unit: str) -> Kind[int]:
    """Return the kind of durations, with or without a unit.

    Args:
        unit: Unit of the value: ms or s.
    """
    allowed = f"{low}..{high} {unit}, as a number or with {DURATION_UNITS}"
    return Kind(partial(_read_whole, low, high, lambda text: whole(parse_duration(text, unit))), allowed, unit)


def spans() -> Kind[str]:
    """Return the kind of one or two durations with a comma between; as it is written."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not 1 <= len(parts := _split(value)) <= 2:
            raise ValueError(value)
        if not all(map(parse_duration, parts)):
            raise ValueError(value)
        return value

    return Kind(read, "one or two durations, such as 24h,30d")


def real(low: float, high: float) -> Kind[float]:
    """Return the kind of numbers in a range."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(value)
        number = float(value)
        if not (math.isfinite(number) and low <= number <= high):
            raise ValueError(value)
        return number

    return Kind(read, f"a number {low}..{high}")


def optional(kind: Kind[T], *off: str) -> Kind[T | None]:
    """Return the kind of another kind's values or None.

    Args:
        off: Words for None, besides YAML's null; `false` and `0` include YAML's values false and 0.
    """

    def read(value: object) -> T | None:
        if value is None or str(value).casefold() in off:
            return None
        return kind.read(value)

    return Kind(read, ", or ".join([kind.allowed, *off]), kind.unit)


def names(*choices: str, empty: bool = True) -> Kind[tuple[str, ...]]:
    """Return the kind of lists of names. As text they are separated by commas; `none` is the empty list.

    Args:
        choices: Allowed names; empty for any name.
    """

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = _read_yaml(value) if value.lstrip().startswith("[") else _split(value)
        elif isinstance(value, dict):
            # RabbitMQ's auth_ldap.servers.1 and so on.
            value = [value[number] for number in sorted(value, key=int)]
        if not isinstance(value, list) or not (value or empty):
            raise ValueError(value)
        if any(not isinstance(name, str) or not name or (choices and name not in choices) for name in value):
            raise ValueError(value)
        # Removes duplicates; the first occurrence stays.
        return tuple(dict.fromkeys(value))

    what = "a list of " + (f"some of {', '.join(choices)}" if choices else "names")
    return Kind(read, what + (", or none" if empty else ""))


def endpoints() -> Kind[tuple[Endpoint, ...] | None]:
    """Return the kind of lists of endpoints, or None if not set; `none` is the empty list."""

    def read(value: object) -> tuple[Endpoint, ...] | None:
        if value is None:
            return None
        if isinstance(value, str):
            value = _read_yaml(value) if value.rstrip().endswith("]") else _split(value)
        elif isinstance(value, int):
            value = [value]
        elif isinstance(value, dict):
            # RabbitMQ's listeners.tcp.1, listeners.tcp.default and so on.
            value = list(value.values())
        if not isinstance(value, list):
            raise ValueError(value)
        return tuple(dict.fromkeys(map(_read_endpoint, value)))

    return Kind(read, "a list of PORT, ADDRESS:PORT or [IPV6-ADDRESS]:PORT, or none")


def path() -> Kind[Path]:
    """Return the kind of file paths; a leading `~` is the home directory."""

    def read(value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(value)
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError(value) from error

    return Kind(read, "a path")


def document() -> Kind[Mapping[str, object]]:
    """Return the kind of mappings, which are not validated; as text, JSON or YAML."""
    return Kind(_read_mapping, "a mapping")


def documents() -> Kind[tuple[Mapping[str, object], ...]]:
    """Return the kind of lists of mappings, which are not validated; as text, JSON or YAML."""

    def read(value: object) -> tuple[Mapping[str, object], ...]:
        value = _read_yaml(value)
        if not isinstance(value, list):
            raise ValueError(value)
        return tuple(_read_mapping(each) for each in value)

    return Kind(read, "a list of mappings")


def query() -> Kind[object]:
    """Return the kind of queries, which whoever asks them validates: a boolean, a mapping or a text."""

    def read(value: object) -> object:
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value.strip().casefold(), value)
        if not isinstance(value, bool | dict):
            raise ValueError(value)
        return value

    return Kind(read, "true, false, a mapping, or a text in YAML or of an Erlang term")


def bind() -> Kind[str | Mapping[str, str]]:
    """Return the kind of ways to log in to a directory: the words as_user and anon, or a DN with its password."""

    def read(value: object) -> str | Mapping[str, str]:
        if value in ("as_user", "anon"):
            return str(value)
        found = _read_mapping(value)
        if {*found} != {"user_dn", "password"} or not all(isinstance(each, str) and each for each in found.values()):
            raise ValueError(value)
        return {name: str(each) for name, each in found.items()}

    return Kind(read, "as_user, anon, or a mapping with user_dn and password", masked=_mask_bind)


def _mask_bind(value: str | Mapping[str, str]) -> str | Mapping[str, str]:
    return value if isinstance(value, str) else {**value, "password": MASK}


def product() -> Kind[ProductVersion]:
    """Return the kind of product names with a version, for example `RabbitMQ 3.10.8`."""

    def read(value: object) -> ProductVersion:
        match = re.fullmatch(r"(\S.*?) +([0-9]\S*)", value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(value)
        return ProductVersion(match[1], match[2])

    return Kind(read, "a product and its version, like RabbitMQ 3.10.8")


def _read_whole(low: int, high: int, parse: Callable[[str], int], value: object) -> int:
    if isinstance(value, str):
        value = parse(value)
    # bool is a subclass of int, and `port: yes` is an error.
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(value)
    return value


def _parse_digits(written: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", written.strip()):
        raise ValueError(written)
    return int(written)


def _read_endpoint(value: object) -> Endpoint:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    # RabbitMQ accepts ::1:5672 without brackets: the port is behind the last colon.
    host, colon, port = str(value).strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if (colon and not host) or "[" in host or "]" in host or " " in host:
        raise ValueError(value)
    return Endpoint(host, _read_whole(0, 65535, _parse_digits, port))


def _split(written: str) -> list[str]:
    if written.strip().casefold() in ("", "none"):
        return []
    return [name.strip() for name in written.split(",")]


def _read_yaml(value: object) -> object:
    if not isinstance(value, str):
        return value
    # Imported on first use: most configurations need no YAML here.
    import yaml

    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(value) from error


def _read_mapping(value: object) -> Mapping[str, object]:
    value = _read_yaml(value)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(value)
    return value
