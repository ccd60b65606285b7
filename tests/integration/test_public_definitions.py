"""Definitions of many releases of RabbitMQ: imported, exported and imported again, over HTTP, by file, by option."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from leveret import LeveretThread
from tests.conformance.http_api import HttpApi
from tests.integration.public_definitions import DEFINITIONS, LEFT_OUT, REMAINING
from tests.support.management import Management

WAYS: Final = ("post", "file", "option")


def imported(way: str, document: Mapping[str, Any], directory: Path) -> tuple[dict[str, Any], str]:
    """Import a document into a new broker; return its export, and what an answer over HTTP says."""
    directory.mkdir()
    file = directory / "definitions.json"
    file.write_text(json.dumps(document))
    definitions: Mapping[str, Any] | Path | None = {"post": None, "file": file, "option": document}[way]
    with LeveretThread(directory / "data", definitions=definitions) as broker:
        address = broker.http_url.rpartition("@")[2]
        said = ""
        if way == "post":
            reply = HttpApi(Management(f"http://guest:guest@{address}")).ask("POST", "definitions", document)
            assert reply.status == 204, reply
            said = reply.headers.get("leveret-notice", "")
        exported: dict[str, Any] = HttpApi(Management(f"http://boss:secret@{address}")).get("definitions")
        return exported, said


def mine(exported: Mapping[str, Any], document: Mapping[str, Any], section: str) -> list[Any]:
    names = {entry.get("name") for entry in document.get(section, [])}
    return [entry for entry in exported[section] if entry.get("vhost") == "shop" or entry.get("name") in names]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("release", DEFINITIONS)
def test_import_export_and_import_again(
    release: str, way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document, left_out = DEFINITIONS[release], LEFT_OUT.get(release, ())
    with caplog.at_level(logging.WARNING, "leveret.definitions"):
        exported, said = imported(way, document, tmp_path / "first")
    assert said == (f"left out: {'; '.join(left_out)}" if left_out and way == "post" else "")
    logged = [record.getMessage().partition(": ")[2] for record in caplog.records if "left out" in record.msg]
    assert logged == (["; ".join(left_out)] if left_out else [])
    for section in (
        "users",
        "vhosts",
        "queues",
        "exchanges",
        "bindings",
        "policies",
        "parameters",
        "global_parameters",
    ):
        remaining = REMAINING.get(release, {}).get(section, len(document.get(section, [])))
        assert len(mine(exported, document, section)) == remaining, section
    types = {queue["name"]: queue["type"] for queue in exported["queues"]}
    for queue in document.get("queues", []):
        named = queue.get("arguments", {}).get("x-queue-type", queue.get("type", "classic"))
        assert types[queue["name"]] == named, queue
    caplog.clear()
    again, said = imported(way, exported, tmp_path / "second")
    assert (again, said) == (exported, "")
