"""Rules of bodies: the parameters of component ``bodies``, and those of the configuration, written for analytics."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.broker import Broker
from leveret.broker.core.json_values import check_nesting
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.virtual_hosts import escape_markup
from leveret.broker.side_programs import last_line
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
_MODULE: Final = "leveret.analytics.bodies.rule_check"
#: Seconds that the check of schemas may take.
_TIMEOUT: Final = 120.0


def check_schemas(rules: Iterable[BodyRule]) -> None:
    """Check types and schemas of rules, in a process beside the broker, and wait for it; without rules do nothing.

    Raises:
        InvalidRule: One is refused, or they cannot be checked.
    """
    values = [asdict(each) for each in rules if each.schema]
    if not values:
        return
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE], input=json.dumps(values).encode(), capture_output=True, timeout=_TIMEOUT
        )
    except OSError as error:
        raise InvalidRule(f"rules for bodies cannot be checked: {error.strerror or error}; try again") from None
    except subprocess.TimeoutExpired:
        raise InvalidRule(f"rules for bodies cannot be checked in {_TIMEOUT:g} s; try again") from None
    if done.returncode:
        names = ", ".join(each["name"] for each in values)
        said = f"the type of {names} is too large" if done.returncode < 0 else last_line(done.stderr)
        raise InvalidRule(f"rules for bodies cannot be checked: {said}")
    problems = [each for each in json.loads(done.stdout) if each]
    if problems:
        raise InvalidRule("\n".join(problems))


def check_imported(document: Mapping[str, Any]) -> None:
    """Check the schemas of the rules in a document of definitions, but for what set_body_rule() refuses.

    Raises:
        DefinitionsError: One is refused.
    """
    found = []
    entries = document.get("parameters")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("component") == COMPONENT:
            with suppress(InvalidRule, ValueError):
                check_nesting(entry.get("value"))
                found.append(read_rule(str(entry.get("name")), entry.get("value"), str(entry.get("vhost"))))
    try:
        check_schemas(found)
    except InvalidRule as invalid:
        text = f"parameters: bodies: {'; '.join(str(invalid).splitlines())}"
        raise DefinitionsError(text, f"Validation failed\n\n{escape_markup(str(invalid))}") from None


def read_body_rule(vhost: VirtualHost, name: str, value: Any) -> BodyRule:
    """Return the rule of a parameter, whose schema check_schemas() checks.

    Raises:
        InvalidRule: The value is refused.
    """
    try:
        check_nesting(value)
    except ValueError as deep:
        raise InvalidRule(f"{name}: {deep}") from None
    return read_rule(name, value, vhost.name)


def set_body_rule(broker: Broker, vhost: VirtualHost, name: str, value: Any) -> bool:
    """Set the parameter of a rule, whose schema was checked; return whether it is new.

    Raises:
        InvalidRule: The value is refused, or another virtual host has a rule of this name, which is one of a table.
    """
    read_body_rule(vhost, name, value)
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
            raise _refusal(invalid) from None
    return found


def check_static_rules(static: Mapping[str, object]) -> None:
    """Check the option `bodies`, schemas as well.

    Raises:
        DefinitionsError: A rule is refused.
    """
    try:
        check_schemas(read_static_rules(static))
    except InvalidRule as invalid:
        raise _refusal(invalid) from None


def _refusal(invalid: InvalidRule) -> DefinitionsError:
    return DefinitionsError(f"bodies: {'; '.join(str(invalid).splitlines())}")


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
        except DefinitionsError as error:
            # A file that a rule of the configuration names has changed since the start.
            log.error("%s (%s/%s is as it was)", error, self._data_dir, NAME)

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
