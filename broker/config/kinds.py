"""The types that an option can have: how each is read and which values it allows.

A kind reads what a YAML file holds as well as text from the environment or the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from leveret.broker.config.units import parse_duration, parse_size

T = TypeVar("T")

_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_URL_PATH: Final = re.compile(r"[A-Za-z0-9._~/-]*")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One type of option.

    Attributes:
        read: Turns what was given, YAML's value or text, into the option's value; raises ValueError for what
            is not allowed.
        allowed: Which values are allowed, in words.
        unit: The unit of the value; empty where there is none.
    """

    read: Callable[[object], T]
    allowed: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ProductVersion:
    """A product and its version.

    Attributes:
        product: Such as `RabbitMQ`.
        version: Such as `3.10.8`.
    """

    product: str
    version: str

    def __str__(self) -> str:
        return f"{self.product} {self.version}"


@dataclass(frozen=True, slots=True)
class SyncRule:
    """When what was written is synced to the disk.

    Attributes:
        mode: `always`, `interval` or `off`.
        interval: Milliseconds between two syncs at least; 0 unless the mode is `interval`.
    """

    mode: str
    interval: int = 0

    def __str__(self) -> str:
        return f"interval({self.interval})" if self.interval else self.mode


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen.

    Attributes:
        host: An address or a name; empty for those that the option `host` names.
        port: 0..65535; 0 takes a free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.host:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(*, empty: bool = False) -> Kind[str]:
    """A string.

    Args:
        empty: Whether it may be empty.

    Returns:
        The kind.
    """

    def read(value: object) -> str:
        if not isinstance(value, str) or not (value or empty):
            raise ValueError(value)
        return value

    return Kind(read, "a string" if empty else "a string that is not empty")


def url_path() -> Kind[str]:
    """A path that stands in addresses as it is written, slashes at its ends or not; it may be empty.

    Returns:
        The kind.
    """

    def read(value: object) -> str:
        if not isinstance(value, str) or not _URL_PATH.fullmatch(value) or {".", ".."} & {*value.split("/")}:
            raise ValueError(value)
        return value

    return Kind(read, "a path of letters, digits, -, ., _, ~ and /")


def choice(*words: str) -> Kind[str]:
    """One of a few words, in any case.

    Args:
        words: The words.

    Returns:
        The kind.
    """

    def read(value: object) -> str:
        for word in words:
            if isinstance(value, str) and value.casefold() == word.casefold():
                return word
        raise ValueError(value)

    return Kind(read, "one of " + ", ".join(words))


def boolean() -> Kind[bool]:
    """True or false.

    Returns:
        The kind.
    """

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.casefold() in _BOOLEANS:
            return _BOOLEANS[value.casefold()]
        raise ValueError(value)

    return Kind(read, "true or false")


def sync_rule() -> Kind[SyncRule]:
    """When what was written is synced.

    Returns:
        The kind.
    """

    def read(value: object) -> SyncRule:
        # YAML takes off for false.
        word = "off" if value is False else str(value).casefold().strip()
        if word in ("always", "off"):
            return SyncRule(word)
        if not word.startswith("interval(") or not word.endswith(")"):
            raise ValueError(value)
        interval = parse_duration(word[9:-1].strip(), unit="ms")
        if not 1 <= interval <= 3_600_000:
            raise ValueError(value)
        return SyncRule("interval", interval)

    return Kind(read, "always, interval(T) with T 1..3600000 ms, or off")


def integer(low: int, high: int) -> Kind[int]:
    """A whole number.

    Args:
        low: The smallest allowed.
        high: The largest allowed.

    Returns:
        The kind.
    """
    return Kind(partial(_read_whole, low, high, _parse_digits), f"a whole number {low}..{high}")


def size(low: int, high: int) -> Kind[int]:
    """A whole number of bytes, also written with a unit.

    Args:
        low: The smallest allowed, bytes.
        high: The largest allowed, bytes.

    Returns:
        The kind.
    """
    allowed = f"{low}..{high} bytes, as a number or like 64MiB, 1GB, 512kB"
    return Kind(partial(_read_whole, low, high, parse_size), allowed, "bytes")


def duration(low: int, high: int, unit: str) -> Kind[int]:
    """A whole number of milliseconds or seconds, also written with a unit.

    Args:
        low: The shortest allowed, in `unit`.
        high: The longest allowed, in `unit`.
        unit: ms or s.

    Returns:
        The kind.
    """
    allowed = f"{low}..{high} {unit}, as a number or with ms, s, min or h"
    return Kind(partial(_read_whole, low, high, partial(parse_duration, unit=unit)), allowed, unit)


def real(low: float, high: float) -> Kind[float]:
    """A number.

    Args:
        low: The smallest allowed.
        high: The largest allowed.

    Returns:
        The kind.
    """

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(value)
        number = float(value)
        if not (math.isfinite(number) and low <= number <= high):
            raise ValueError(value)
        return number

    return Kind(read, f"a number {low}..{high}")


def optional(kind: Kind[T], *off: str) -> Kind[T | None]:
    """Another kind, or nothing.

    Args:
        kind: The other kind.
        off: Words for nothing, besides YAML's empty value; `false` and `0` stand for YAML's own too.

    Returns:
        The kind.
    """

    def read(value: object) -> T | None:
        if value is None or str(value).casefold() in off:
            return None
        return kind.read(value)

    return Kind(read, ", or ".join([kind.allowed, *off]), kind.unit)


def names(*choices: str, empty: bool = True) -> Kind[tuple[str, ...]]:
    """A list of names; as text, with commas between them; `none` for no name.

    Args:
        choices: The names there are; nothing where any will do.
        empty: Whether there may be none.

    Returns:
        The kind.
    """

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = _read_yaml(value) if value.lstrip().startswith("[") else _split(value)
        if not isinstance(value, list) or not (value or empty):
            raise ValueError(value)
        if any(not isinstance(name, str) or not name or (choices and name not in choices) for name in value):
            raise ValueError(value)
        # Twice the same name is once that name, in the place where it first stood.
        return tuple(dict.fromkeys(value))

    what = "a list of " + (f"some of {', '.join(choices)}" if choices else "names")
    return Kind(read, what + (", or none" if empty else ""))


def endpoints() -> Kind[tuple[Endpoint, ...] | None]:
    """Addresses and ports to listen on, or none of them, or nothing said.

    Returns:
        The kind.
    """

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
    """A path; a leading `~` is the home directory.

    Returns:
        The kind.
    """

    def read(value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(value)
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError(value) from error

    return Kind(read, "a path")


def document() -> Kind[Mapping[str, object]]:
    """A mapping that is handed on as it is; as text, JSON or YAML.

    Returns:
        The kind.
    """
    return Kind(_read_mapping, "a mapping")


def documents() -> Kind[tuple[Mapping[str, object], ...]]:
    """A list of mappings that are handed on as they are; as text, JSON or YAML.

    Returns:
        The kind.
    """

    def read(value: object) -> tuple[Mapping[str, object], ...]:
        value = _read_yaml(value)
        if not isinstance(value, list):
            raise ValueError(value)
        return tuple(_read_mapping(each) for each in value)

    return Kind(read, "a list of mappings")


def product() -> Kind[ProductVersion]:
    """A product and its version, like `RabbitMQ 3.10.8`.

    Returns:
        The kind.
    """

    def read(value: object) -> ProductVersion:
        match = re.fullmatch(r"(\S.*?) +([0-9]\S*)", value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(value)
        return ProductVersion(match[1], match[2])

    return Kind(read, "a product and its version, like RabbitMQ 3.10.8")


def _read_whole(low: int, high: int, parse: Callable[[str], int], value: object) -> int:
    if isinstance(value, str):
        value = parse(value)
    # A bool is an int to Python, and `port: yes` is a mistake.
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
    # RabbitMQ writes ::1:5672 without brackets: the port is behind the last colon.
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
    # Most brokers have no use for it.
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
