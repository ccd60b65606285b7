"""Rules of bodies: the parameters of component ``bodies``, and those of the configuration, written for analytics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.broker import Broker
from leveret.broker.core.json_values import check_nesting
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.storage.disk.files import Files
from leveret.storage.readers.body_rules import (
    COMPONENT,
    NAME,
    BodyRule,
    InvalidRule,
    read_rule,
    write_rules,
)

log = logging.getLogger("leveret.bodies")


def set_body_rule(broker: Broker, vhost: VirtualHost, name: str, value: Any) -> bool:
    """Set the parameter of a rule; return whether it is new.

    Raises:
        InvalidRule: The value is refused, or another virtual host has a rule of this name, which is one of a table.
    """
    try:
        check_nesting(value)
    except ValueError as deep:
        raise InvalidRule(f"{name}: {deep}") from None
    read_rule(name, value, vhost.name)
    for other, component, known in broker.parameters.values:
        if component == COMPONENT and known == name and other != vhost.name:
            raise InvalidRule(f"{name}: virtual host '{other}' has a rule of this name; choose another one")
    return broker.parameters.set(vhost.name, COMPONENT, name, value)


def read_static_rules(static: Mapping[str, object]) -> list[BodyRule]:
    """Return the rules of the option `bodies`.

    Raises:
        DefinitionsError: One is refused.
    """
    found = []
    for name, value in static.items():
        try:
            found.append(read_rule(name, value, read_file=lambda path: Path(path).read_bytes()))
        except InvalidRule as invalid:
            raise DefinitionsError(f"bodies: {'; '.join(str(invalid).splitlines())}") from None
    return found


class BodyRules:
    """Writes the rules to the data directory, where analytics find them.

    Args:
        static: The option `bodies`.
        soon: Calls a function in the next turn of the loop.
    """

    def __init__(
        self,
        broker: Broker,
        static: Mapping[str, object],
        data_dir: Path,
        files: Files,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._broker = broker
        self._static = static
        self._data_dir = data_dir
        self._files = files
        self._soon = soon
        self._is_due = False

    def start(self) -> None:
        """Write them now, and when a parameter has been set or cleared."""
        self._write()
        self._broker.parameters.watchers[COMPONENT] = self._changed

    def _changed(self, vhost_name: str, name: str) -> None:
        # Those of an import are written once.
        if not self._is_due:
            self._is_due = True
            self._soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        try:
            write_rules(self._files, str(self._data_dir), [*self._rules()])
        except OSError as error:
            log.error("%s/%s cannot be written: %s", self._data_dir, NAME, error.strerror or error)

    def _rules(self) -> Iterator[BodyRule]:
        static = {each.name: each for each in read_static_rules(self._static)}
        for (vhost_name, component, name), value in self._broker.parameters.values.items():
            if component != COMPONENT:
                continue
            try:
                rule = read_rule(name, value, vhost_name)
            except InvalidRule as invalid:
                # From a newer release.
                log.error("bodies: %s", "; ".join(str(invalid).splitlines()))
                continue
            if static.pop(name, None) is not None:
                log.warning(
                    "bodies: the rule %s of virtual host '%s' replaces that of the configuration", name, vhost_name
                )
            yield rule
        yield from static.values()
