"""Imports a definitions document into an empty broker, one entry after the other, to find out what is refused.

What this broker accepts is not written down a second time: it is tried.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from leveret.broker.app import App
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.config.kinds import SyncRule
from leveret.broker.config.options import Settings
from leveret.broker.operations.broker_definitions import import_steps

#: Sections in the order in which they depend on each other. Those with a virtual host have True.
SECTIONS: Final[Mapping[str, bool]] = {
    "vhosts": False,
    "users": False,
    "permissions": True,
    "topic_permissions": True,
    "global_parameters": False,
    "parameters": True,
    "policies": True,
    "exchanges": True,
    "queues": True,
    "bindings": True,
}
_DEFAULT_VHOST: Final = "/"


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """What became of an entry.

    Attributes:
        section: The section of the document.
        entry: The entry; its virtual host is filled in.
        refusal: Why the import of the entry is refused; empty if it is not.
        left_out: Texts about what of it is left out.
    """

    section: str
    entry: Mapping[str, Any]
    refusal: str
    left_out: list[str]


def entries(document: Mapping[str, Any], section: str) -> Iterator[dict[str, Any]]:
    """Return the entries of a section. Those of the definitions of one virtual host have none; they get `/`.

    Raises:
        ValueError: The section is not a list of objects.
    """
    found = document.get(section) or []
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise ValueError(f"the section '{section}' is not a list of objects")
    for each in found:
        yield {"vhost": _DEFAULT_VHOST, **each} if SECTIONS[section] else dict(each)


def rehearse(document: Mapping[str, Any]) -> list[Trial]:
    """Import the entries of a document, as RabbitMQ exports it, into a broker that is thrown away.

    Raises:
        ValueError: A section is not a list of objects.
        OSError: There is no room for a temporary directory.
    """
    sections = {section: list(entries(document, section)) for section in SECTIONS}
    known = {str(each.get("name")) for each in sections["vhosts"]}
    for section, has_vhost in SECTIONS.items():
        named = {each["vhost"] for each in sections[section]} if has_vhost else ()
        # The definitions of one virtual host do not have the virtual host itself.
        sections["vhosts"] += [{"name": name} for name in sorted(map(str, named)) if name not in known]
        known.update(map(str, named))
    version = {key: document[key] for key in ("rabbit_version", "rabbitmq_version") if key in document}
    with TemporaryDirectory(prefix="leveret-migration-") as folder:
        storage = dataclasses.replace(Settings().storage, sync=SyncRule("off"))
        return asyncio.run(_rehearse(Settings(data_dir=Path(folder), storage=storage), version, sections))


async def _rehearse(
    settings: Settings, version: Mapping[str, Any], sections: Mapping[str, list[dict[str, Any]]]
) -> list[Trial]:
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        app = App(settings)
        try:
            app.load()
            return [
                _try(app, section, {**version, section: [entry]}) for section in SECTIONS for entry in sections[section]
            ]
        finally:
            await app.abandon()
    finally:
        logging.disable(disabled)


def _try(app: App, section: str, document: Mapping[str, Any]) -> Trial:
    left_out: list[str] = []
    refusal = ""
    try:
        for _ in import_steps(document, app.broker, app.accounts, left_out):
            pass
    except DefinitionsError as error:
        reason = error.reason if isinstance(error.reason, str) and error.reason else str(error)
        refusal = " ".join(reason.split())
    return Trial(section, document[section][0], refusal, left_out)
