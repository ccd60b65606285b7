"""The compose files are what Compose reads: its own library says so (`tests/integration/go/compose`)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.config.options import OPTIONS
from tests.support.documentation import ROOT

_SECONDS = 600
_MODULE = Path(__file__).parent / "go"
_KNOWN = {option.environment for option in OPTIONS.values()}
_FILES = ("compose.yaml", "docker/compose-cluster.yaml", "docker/compose-lakehouse.yaml")


@pytest.mark.go
@pytest.mark.timeout(_SECONDS + 60)
def test_compose_reads_the_files(tmp_path: Path) -> None:
    program = tmp_path / "compose"
    subprocess.run(["go", "build", "-o", program, "./compose"], cwd=_MODULE, check=True, timeout=_SECONDS)
    # No variables but the one that has no default.
    environment = {"REPLICATION_SECRET": "a long random text", "PATH": os.environ["PATH"]}
    services: dict[str, Any] = {}
    for name in _FILES:
        ran = subprocess.run(
            [program, ROOT / name], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        services = json.loads(ran.stdout)["services"]
        for service in services.values():
            options = {each for each in service.get("environment") or () if each.startswith("LEVERET_")}
            assert options <= _KNOWN
            build = service.get("build")
            if build is not None and "dockerfile_inline" not in build:
                assert Path(build["context"], build["dockerfile"]) == ROOT / "docker" / "Dockerfile"
            for volume in service.get("volumes") or ():
                assert volume["type"] == "volume" or Path(volume["source"]).exists(), volume
        assert any("build" in each for each in services.values()), name
    assert services["duckdb"]["depends_on"]["broker"]["condition"] == "service_healthy"
