"""An option value before validation."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.broker.config.errors import ConfigError


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
