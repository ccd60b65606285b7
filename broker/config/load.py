"""Settings out of what was given: command line before environment before file before default."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from leveret.broker.config.declaration import build
from leveret.broker.config.errors import ConfigError
from leveret.broker.config.groups import is_group, members
from leveret.broker.config.options import OPTIONS, Settings
from leveret.broker.config.raw_setting import RawSetting

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


@dataclass(slots=True)
class LoadResult:
    """What was given, and what is wrong with it.

    Attributes:
        values: Values by the dotted names of their options; what is missing has its default.
        origins: Where each stood, in words.
        problems: All that is wrong, in the order of file, environment, command line.
    """

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[ConfigError] = field(default_factory=list)

    def settings(self) -> Settings:
        """The settings that the values make."""
        return build(Settings, self.values)


def load(file: Path | None, environ: Mapping[str, str], arguments: Iterable[RawSetting] = ()) -> Settings:
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
    loaded = read(file, environ, arguments)
    if loaded.problems:
        raise loaded.problems[0]
    return loaded.settings()


def read(file: Path | None, environ: Mapping[str, str], arguments: Iterable[RawSetting] = ()) -> LoadResult:
    """Read everything that is given, also what stands behind something wrong; for the arguments see load()."""
    loaded = LoadResult()
    sources = chain(() if file is None else _read_file(file), read_environment(environ), arguments)
    for given in sources:
        try:
            if isinstance(given, ConfigError):
                raise given
            name, value = _checked(given)
        except ConfigError as problem:
            loaded.problems.append(problem)
        else:
            loaded.values[name], loaded.origins[name] = value, given.origin
    return loaded


def _read_file(file: Path) -> Iterator[RawSetting | ConfigError]:
    # Takes a tenth of the time in which a broker inside a test suite starts, which reads no file.
    from leveret.broker.config.yaml_file import read_file

    return read_file(file)


def read_environment(environ: Mapping[str, str]) -> Iterator[RawSetting | ConfigError]:
    """Take the values out of the environment.

    Args:
        environ: The environment.

    Yields:
        What its LEVERET_ variables give, and what is wrong with their names: one looks like a misspelt one of ours.
        Those of other programs are skipped.
    """
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or not value or variable == CONFIG_FILE_VARIABLE:
            continue
        option = _BY_VARIABLE.get(variable)
        if option is None:
            yield from _near_misses(variable)
        elif not (variable.endswith("_PORT") and _SERVICE_LINK.match(value)):
            yield RawSetting(option.name, value, variable)


def _checked(given: RawSetting) -> tuple[str, object]:
    """The name and value of an option."""
    option = OPTIONS.get(given.name)
    if option is None:
        raise given.error(f"{given.origin}: unknown option {given.name!r}{_advice(given.name)}")
    if isinstance(given.value, str) and not _is_unicode(given.value):
        raise given.error(f"{given.origin}: {option.name}: the value is not UTF-8")
    try:
        return option.name, option.kind.read(given.value)
    except ValueError:
        shown = "this value" if option.secret else repr(given.value)
        if not isinstance(given.value, str):
            # YAML has its own ideas: a password 0123 without quotes is the number 83.
            shown += f" ({type(given.value).__name__})"
        text = f"{given.origin}: {option.name}: {shown} is not allowed; give {option.kind.allowed}"
        raise given.error(text) from None


def _is_unicode(text: str) -> bool:
    """Whether a text can be written again: what the system gives us that is not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _advice(name: str) -> str:
    if is_group(name):
        return f"; it is a group, give {', '.join(members(name))}"
    import difflib

    near = difflib.get_close_matches(name, OPTIONS, n=1)
    if not near:
        # A group's name may be right and forgotten, or the other way round.
        near = [known for known in OPTIONS if known.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    return f"; did you mean {near[0]!r}?" if near else "; see leveret --help and the option reference"


def _near_misses(variable: str) -> Iterator[ConfigError]:
    # Other programs have LEVERET_ variables too, so that only what resembles an option is refused. With the
    # common prefix, everything would resemble everything.
    import difflib

    suffixes = [known.removeprefix(_PREFIX) for known in (*_BY_VARIABLE, CONFIG_FILE_VARIABLE)]
    near = difflib.get_close_matches(variable.removeprefix(_PREFIX), suffixes, n=1, cutoff=_NEAR_MISS)
    if near:
        yield ConfigError(
            f"{variable}: unknown environment variable; did you mean {_PREFIX}{near[0]}? Otherwise unset it"
        )
