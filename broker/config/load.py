"""Loads the settings: the command line overrides the environment, which overrides the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from leveret.broker.config.auth import gather_part
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.declaration import RawSetting, build
from leveret.broker.config.options import OPTIONS, Settings, is_group, members

CONFIG_FILE_VARIABLE: Final = "LEVERET_CONFIG_FILE"
"""Environment variable with the path of the configuration file, used without `--config`."""

_BY_VARIABLE: Final = {option.environment: option for option in OPTIONS.values()}
_PREFIX: Final = "LEVERET_"
# Kubernetes sets variables for every service in each container. A service named "leveret" results in
# LEVERET_PORT=tcp://10.0.0.1:5672, which is not an option.
_SERVICE_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
#: Variables of leveretctl, the installation, this project's tests, and services of Kubernetes.
_OF_OTHERS: Final = re.compile(
    r"LEVERET_(URL|CACERT|COMPILE|TEST_\w+"
    r"|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?))"
)


@dataclass(slots=True)
class LoadResult:
    """Option values and errors of a configuration.

    Attributes:
        values: Values by dotted name; missing options have their defaults.
        origins: Origin of each value for error texts, by dotted name.
        problems: All errors, in the order of file, environment, command line.
    """

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[ConfigError] = field(default_factory=list)

    def settings(self) -> Settings:
        """Build the settings from the values."""
        return build(Settings, self.values)

    def checked(self) -> LoadResult:
        """Return itself; raise the first error if there is one."""
        if self.problems:
            raise self.problems[0]
        return self


def load(file: Path | None, environ: Mapping[str, str], arguments: Iterable[RawSetting] = ()) -> Settings:
    """Load the settings.

    Args:
        file: YAML file with nested or dotted names; None for no file.
        environ: Environment variables; an empty variable counts as not set.
        arguments: Settings of the command line; a later one replaces an earlier one.

    Raises:
        ConfigError: A name is unknown, a value is not allowed, or the file cannot be read.
    """
    return read(file, environ, arguments).checked().settings()


def read(file: Path | None, environ: Mapping[str, str], arguments: Iterable[RawSetting] = ()) -> LoadResult:
    """Read all settings, and collect all errors instead of raising the first; for the arguments see load()."""
    loaded = LoadResult()
    sources = chain(() if file is None else _read_file(file), read_environment(environ), arguments)
    for raw in _join_parts(sources):
        try:
            if isinstance(raw, ConfigError):
                raise raw
            name, value = _validate(raw)
        except ConfigError as problem:
            loaded.problems.append(problem)
        else:
            loaded.values[name], loaded.origins[name] = value, raw.origin
    return loaded


def _join_parts(sources: Iterable[RawSetting | ConfigError]) -> Iterator[RawSetting | ConfigError]:
    """Yield settings, with the parts of an option as one after all others, as which they count."""
    parts: dict[str, dict[str, object]] = {}
    origins: dict[str, str] = {}
    for raw in sources:
        option = "" if isinstance(raw, ConfigError) else gather_part(raw.name, raw.value, parts)
        if isinstance(raw, ConfigError) or not option:
            yield raw
        else:
            origins.setdefault(option, raw.origin)
    for option, value in parts.items():
        yield RawSetting(option, value, origins[option])


def _read_file(file: Path) -> Iterator[RawSetting | ConfigError]:
    # Imported on first use: importing yaml takes a tenth of the start time of an embedded broker, which reads no file.
    from leveret.broker.config.yaml_file import read_file

    return read_file(file)


def read_environment(environ: Mapping[str, str]) -> Iterator[RawSetting | ConfigError]:
    """Read the settings of environment variables.

    Yields:
        Settings, and errors for variables that are not those of options. Those of leveretctl and of Kubernetes are
        skipped.
    """
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or not value or variable == CONFIG_FILE_VARIABLE:
            continue
        if variable.endswith("_PORT") and _SERVICE_LINK.match(value):
            continue
        option = _BY_VARIABLE.get(variable)
        if option is not None:
            yield RawSetting(option.name, value, variable)
        elif not _OF_OTHERS.fullmatch(variable):
            yield _unknown(variable)


def _validate(raw: RawSetting) -> tuple[str, object]:
    """Return name and value of a valid setting; raise the setting's error otherwise."""
    option = OPTIONS.get(raw.name)
    if option is None:
        raise raw.error(f"{raw.origin}: unknown option {raw.name!r}{_advice(raw.name)}")
    if isinstance(raw.value, str) and not _is_unicode(raw.value):
        raise raw.error(f"{raw.origin}: {option.name}: the value is not UTF-8")
    try:
        return option.name, option.kind.read(raw.value)
    except ValueError:
        shown = "this value" if option.has_secrets else repr(raw.value)
        if not isinstance(raw.value, str):
            # The type helps with surprises of YAML: a password 0123 without quotes is the number 83.
            shown += f" ({type(raw.value).__name__})"
        text = f"{raw.origin}: {option.name}: {shown} is not allowed; give {option.kind.allowed}"
        raise raw.error(text) from None


def _is_unicode(text: str) -> bool:
    """Return whether a text has no surrogates, which stand for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _advice(name: str) -> str:
    if is_group(name):
        return f"; it is a group, give {', '.join(members(name))}"
    # The group may be missing or wrong, with the right name of the option.
    near = nearest(name, OPTIONS) or next(
        (each for each in OPTIONS if each.rpartition(".")[2] == name.rpartition(".")[2]), ""
    )
    return f"; did you mean {near!r}?" if near else "; see leveret --help and the option reference"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like another one; "" if none is much like it."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def _unknown(variable: str) -> ConfigError:
    # Without the common prefix, which would make all names similar.
    suffixes = [known.removeprefix(_PREFIX) for known in (*_BY_VARIABLE, CONFIG_FILE_VARIABLE)]
    near = nearest(variable.removeprefix(_PREFIX), suffixes)
    advice = f"did you mean {_PREFIX}{near}? Otherwise unset it" if near else "unset it, or see the option reference"
    return ConfigError(f"{variable}: unknown environment variable; {advice}")
