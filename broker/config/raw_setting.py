"""One value for one option, as it was given."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.broker.config.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RawSetting:
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
