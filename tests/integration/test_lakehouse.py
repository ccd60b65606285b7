"""The notebook about Iceberg tables runs as it is; what the compose file starts works together."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from leveret.broker.config.options import OPTIONS
from tests.integration.test_iceberg_catalog import bodies, publish
from tests.integration.waiting import wait_until
from tests.support.documentation import ROOT
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

NOTEBOOK = ROOT / "docs" / "notebooks" / "lakehouse.ipynb"
COMPOSE = ROOT / "docker" / "compose-lakehouse.yaml"
ATTACH = ROOT / "docker" / "lakehouse" / "attach.sql"


@pytest.mark.timeout(600)
def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code), "it is committed without outputs"
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [each.data["text/plain"] for cell in code for each in cell.outputs if each.output_type == "execute_result"]
    assert [ast.literal_eval(text) for text in shown] == [
        200,
        [("app", 50, 2450.0), ("web", 150, 7500.0)],
        [("auto_ack", 100)],
        (200, 300, "append", "shop"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_compose_file_starts(tmp_path: Path) -> None:
    """Its broker with its options, and its DuckDB with its packages, as processes."""
    services = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    environment = {
        name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(value)).replace("/var/lib/leveret", str(tmp_path))
        for name, value in services["broker"]["environment"].items()
    }
    assert environment.keys() <= {option.environment for option in OPTIONS.values()}
    assert environment.pop("LEVERET_DATA_DIR") == str(tmp_path / "data")
    dockerfile = services["duckdb"]["build"]["dockerfile_inline"]
    packages = re.findall(r"duckdb[a-z-]*==\S+", dockerfile)
    directory = ROOT / "build" / "duckdb-command"
    if not directory.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory), *packages]
        subprocess.run(install, check=True)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)
    assert ast.literal_eval(entry) == ["python", "-m", "duckdb_cli", "-init", "/lakehouse/attach.sql"]
    assert "./lakehouse:/lakehouse:ro" in services["duckdb"]["volumes"]
    with LeveretProcess(tmp_path, environment=environment) as broker:
        publish(broker, "orders", range(10))
        wait_until(lambda: bodies(broker).total() == 10, "the table has all messages")
        script = tmp_path / "attach.sql"
        text = ATTACH.read_text("utf-8").replace("http://broker:15672", Management(broker.http_url).base)
        script.write_text(text.replace("'/duckdb/", f"'{directory}/"), "utf-8")
        query = "select queue, count(*) from lake.leveret.messages group by queue"
        done = subprocess.run(
            [sys.executable, "-m", "duckdb_cli", "-init", str(script), "-csv", "-c", query],
            env={**os.environ, "PYTHONPATH": str(directory), "LAKE_USER": "guest", "LAKE_PASS": "guest"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert "orders,10" in done.stdout.splitlines(), done.stdout + done.stderr
