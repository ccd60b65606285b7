"""What compose.yaml refers to is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from leveret.broker.config.options import OPTIONS

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text("utf-8")


def services() -> dict[str, Any]:
    found = COMPOSE["services"]
    assert isinstance(found, dict)
    return found


def mounts() -> Iterator[tuple[str, str]]:
    """What is mounted, and where."""
    for service in services().values():
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            yield source, target


def has_compose() -> bool:
    docker = shutil.which("docker")
    return docker is not None and not subprocess.run([docker, "compose", "version"], capture_output=True).returncode


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_docker_compose_takes_it() -> None:
    command = ["docker", "compose", "--file", str(ROOT / "compose.yaml"), "--profile", "analytics", "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_services() -> None:
    assert set(services()) == {"broker", "prometheus", "grafana", "analytics"}
    assert services()["analytics"]["profiles"] == ["analytics"]
    for name, service in services().items():
        assert service["image"], name
        assert set(service.get("depends_on", ())) <= set(services()), name


def test_mounted_files_and_volumes_exist() -> None:
    sources = {source for source, _ in mounts()}
    assert {"./docker/prometheus", "./docker/grafana/dashboards"} <= sources
    for source in sources:
        if source.startswith("."):
            assert (ROOT / source).exists(), source
        else:
            assert source in COMPOSE["volumes"], source


def test_targets_of_the_dockerfile_exist() -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    for service in services().values():
        build = service.get("build")
        if build:
            assert build["target"] in targets
            assert (ROOT / build["dockerfile"]).is_file()


def test_images_of_others_have_a_tag() -> None:
    for name, service in services().items():
        assert "build" in service or re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_options_exist() -> None:
    variables = {option.environment for option in OPTIONS.values()}
    assert set(services()["broker"]["environment"]) <= variables


def test_published_ports_are_those_of_the_image() -> None:
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    inside = {port.rpartition(":")[2] for port in services()["broker"]["ports"]}
    assert inside <= set(exposed.split())


def test_what_is_mounted_is_what_the_programs_are_told() -> None:
    """Each path on a command line or in a variable lies in something mounted."""
    for name, service in services().items():
        if "build" in service:
            continue
        targets = [volume.split(":")[1] for volume in service["volumes"]]
        texts = [*service.get("command", ()), *(str(value) for value in service.get("environment", {}).values())]
        for path in re.findall(r"(?:^|=)(/[\w/.-]+)", "\n".join(texts), re.MULTILINE):
            assert any(path == target or path.startswith(f"{target}/") for target in targets), (name, path)
    provider = yaml.safe_load((ROOT / "docker/grafana/provisioning/dashboards/leveret.yaml").read_text("utf-8"))
    (found,) = provider["providers"]
    assert ("./docker/grafana/dashboards", found["options"]["path"]) in set(mounts())
