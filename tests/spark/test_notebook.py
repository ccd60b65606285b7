"""The notebook runs as it is, and finds what it says."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.documentation import ROOT

pytestmark = pytest.mark.spark

NOTEBOOK = ROOT / "docs" / "notebooks" / "full_queue.ipynb"


def test_from_a_full_queue_to_its_cause(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code), "it is committed without outputs"
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [each.data["text/plain"] for cell in code for each in cell.outputs if each.output_type == "execute_result"]
    queues, events, kinds, letters, causes, again = (ast.literal_eval(text) for text in shown)
    assert [row[:2] for row in queues] == [("orders", 1000), ("orders.dead", 1600)]
    assert events == [("auto_ack", False, 300), ("maxlen", True, 1600)]
    assert kinds == ["auto_ack", "maxlen"]
    assert letters == [
        ("importer", "orders", "maxlen", 1500),
        ("web", "orders", "maxlen", 75),
        ("app", "orders", "maxlen", 25),
    ]
    assert causes == [("importer", "orders-may.csv", 500, 2500), ("web", None, 75, 75), ("app", None, 25, 25)]
    assert again == [("orders-may.csv", 500, 5, 2500)]
