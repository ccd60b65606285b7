"""Settings out of what was given: command line before environment before file before default."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

from broker.config.declaration import build
from broker.config.errors import ConfigError
from broker.config.options import OPTIONS, Settings

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_FILE_VARIABLE: Final = "LEVERET_CONFIG_FILE"
"""The environment variable that names the file when `--config` does not."""

_BY_VARIABLE: Final = {option.environment: option for option in OPTIONS.values()}
_PREFIX: Final = "LEVERET_"
# Kubernetes gives each container variables about every service: one named "leveret" makes
# LEVERET_PORT=tcp://10.0.0.1:5672, which is not for us.
_SERVICE_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
_NEAR_MISS: Final = 0.85


@dataclass(frozen=True, slots=True)
class Given:
    """One value for one option, as it was given.

    Attributes:
        name: The option's dotted name, not yet checked.
        value: YAML's value, or text.
        origin: Where it stood, in words.
        error: What to raise when it cannot be used.
    """

    name: str
    value: object
    origin: str
    error: type[ConfigError] = ConfigError


def load(file: Path | None, environ: Mapping[str, str], arguments: Iterable[Given] = ()) -> Settings:
    """Make the settings.

    Args:
        file: A YAML file, options nested or with dotted names; none for no file.
        environ: The environment; an empty variable counts as not set.
        arguments: What the command line gave; a later one replaces an earlier one.

    Returns:
        The settings.

    Raises:
        ConfigError: Something given is unknown or not allowed, or the file cannot be read.
    """
    values: dict[str, object] = {}
    if file is not None:
        values.update(_checked(read_file(file)))
    values.update(_checked(read_environment(environ)))
    values.update(_checked(arguments))
    return build(Settings, values)


def read_file(file: Path) -> Iterator[Given]:
    """Take the values out of a YAML file.

    Args:
        file: The file.

    Yields:
        What it gives.

    Raises:
        ConfigError: It cannot be read, is no YAML, or names an option twice or one that does not exist.
    """
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: has to be a mapping of option names to values")
    seen = set()
    for given in _flatten(content, "", str(file)):
        if given.name in seen:
            raise ConfigError(f"{file}: {given.name} is given twice, nested and dotted; keep one")
        seen.add(given.name)
        yield given


def read_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    """Take the values out of the environment.

    Args:
        environ: The environment.

    Yields:
        What its LEVERET_ variables give. Those of other programs are passed over.

    Raises:
        ConfigError: A variable looks like a misspelt one of ours.
    """
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or not value or variable == CONFIG_FILE_VARIABLE:
            continue
        option = _BY_VARIABLE.get(variable)
        if option is None:
            _refuse_near_miss(variable)
        elif not (variable.endswith("_PORT") and _SERVICE_LINK.match(value)):
            yield Given(option.name, value, variable)


def _flatten(content: Mapping[object, object], prefix: str, origin: str) -> Iterator[Given]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if name in OPTIONS or not _is_group(name):
            # An unknown name is refused with the values, where all sources are.
            yield Given(name, value, origin)
        elif isinstance(value, dict):
            yield from _flatten(value, f"{name}.", origin)
        elif value is not None:
            raise ConfigError(f"{origin}: {name} is a group; give {', '.join(_members(name))}")


def _checked(source: Iterable[Given]) -> Iterator[tuple[str, object]]:
    for given in source:
        option = OPTIONS.get(given.name)
        if option is None:
            raise given.error(f"{given.origin}: unknown option {given.name!r}{_advice(given.name)}")
        try:
            yield option.name, option.kind.read(given.value)
        except ValueError:
            shown = "this value" if option.secret else repr(given.value)
            if not isinstance(given.value, str):
                # YAML has its own ideas: a password 0123 without quotes is the number 83.
                shown += f" ({type(given.value).__name__})"
            raise given.error(
                f"{given.origin}: {option.name}: {shown} is not allowed; give {option.kind.allowed}"
            ) from None


def _advice(name: str) -> str:
    if _is_group(name):
        return f"; it is a group, give {', '.join(_members(name))}"
    near = difflib.get_close_matches(name, OPTIONS, n=1)
    if not near:
        # A group's name may be right and forgotten, or the other way round.
        near = [known for known in OPTIONS if known.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    return f"; did you mean {near[0]!r}?" if near else "; see leveret --help and the option reference"


def _is_group(name: str) -> bool:
    return bool(_members(name))


def _members(group: str) -> list[str]:
    return [name for name in OPTIONS if name.startswith(f"{group}.")]


def _refuse_near_miss(variable: str) -> None:
    # Other programs have LEVERET_ variables too, so that only what resembles an option is refused. With the
    # common prefix, everything would resemble everything.
    suffixes = [known.removeprefix(_PREFIX) for known in (*_BY_VARIABLE, CONFIG_FILE_VARIABLE)]
    near = difflib.get_close_matches(variable.removeprefix(_PREFIX), suffixes, n=1, cutoff=_NEAR_MISS)
    if near:
        raise ConfigError(
            f"{variable}: unknown environment variable; did you mean {_PREFIX}{near[0]}? Otherwise unset it"
        )
