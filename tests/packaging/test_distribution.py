"""What `make dist` builds: it holds everything, and works where nothing else of the project is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from email.parser import BytesParser
from email.policy import default
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from leveret.broker.version import VERSION
from tests.integration.program import Program

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "policies", "protocol", "storage")

_SECONDS = 600


@cache
def committed() -> list[str]:
    """What a clean checkout has, and what is about to be committed."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return sorted(name for name in set(done.stdout.split("\0")) if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, the wheel made from the source distribution."""
    checkout, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in committed():
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"leveret-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment that has the wheel and what it depends on, and nothing else.

    The dependencies are those of this environment, by a link each, so that nothing has to be fetched.
    """
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in dependencies("leveret", set()):
        link(distribution(name), packages)
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-index", str(wheel)], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return environment / "bin"


def dependencies(name: str, extras: set[str], found: dict[str, None] | None = None) -> list[str]:
    """All that a distribution needs, itself excluded, as its metadata says it."""
    found = {} if found is None else found
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        marker = needed.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            continue
        if needed.name not in found:
            found[needed.name] = None
            dependencies(needed.name, set(needed.extras), found)
    return list(found)


def link(wanted: Distribution, packages: Path) -> None:
    """Link whatever a distribution has at the top of its folder of packages."""
    tops = {PurePosixPath(file).parts[0] for file in wanted.files or ()}
    for top in tops - {"..", "__pycache__"}:
        target = packages / top
        if not target.exists():
            target.symlink_to(Path(str(wanted.locate_file(top))))


def run(program: Path, *arguments: str) -> str:
    """Run an installed program, away from the sources."""
    done = subprocess.run(
        [program, *arguments],
        cwd=program.parent,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def clean() -> dict[str, str]:
    """The environment without what would lead to the sources."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LEVERET_", "PYTHON"))}


# --- what is in them ------------------------------------------------------------------------------------------------


def test_wheel_has_all_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    information = f"leveret-{VERSION}.dist-info/"
    packed = {name for name in names if not name.startswith(information)}
    assert packed == {name for name in committed() if name.startswith(tuple(f"{each}/" for each in PACKAGES))}
    assert "broker/management/http/openapi.yaml" in packed
    assert f"{information}licenses/LICENSE" in names


def test_wheel_describes_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = BytesParser(policy=default).parsebytes(archive.read(f"leveret-{VERSION}.dist-info/METADATA"))
        programs = archive.read(f"leveret-{VERSION}.dist-info/entry_points.txt").decode()
    assert metadata["Version"] == VERSION
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"leveret", "leveretctl", "leveret-analytics"} <= {line.partition(" ")[0] for line in programs.splitlines()}


def test_source_distribution_has_everything(dist: Path) -> None:
    """Tests, images and documents too: it is all that somebody needs to build and check a package of a distribution."""
    top = f"leveret-{VERSION}/"
    with tarfile.open(dist / f"leveret-{VERSION}.tar.gz") as archive:
        names = {member.name.removeprefix(top) for member in archive.getmembers() if member.isfile()}
    assert names == {*committed(), "PKG-INFO"}


# --- what it does ---------------------------------------------------------------------------------------------------


def test_programs_know_their_version(installed: Path) -> None:
    assert run(installed / "leveret", "--version") == f"leveret {VERSION}\n"
    assert run(installed / "leveretctl", "version") == f"{VERSION}\n"


def test_analytics_say_what_is_missing(installed: Path) -> None:
    done = subprocess.run(
        [installed / "leveret-analytics", "backlog", "--data-dir", "x"],
        cwd=installed,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'leveret[analytics]'" in done.stderr


def test_broker_serves_its_files(installed: Path, tmp_path: Path) -> None:
    """Its pages and its API, out of the installed package."""
    ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
    log = tmp_path / "stderr.log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [installed / "leveret", "--host", "127.0.0.1", *ports, "--data-dir", str(tmp_path / "data")],
            cwd=tmp_path,
            env=clean(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            program = Program(process, log)
            base = f"http://{program.addresses['management']}"
            index = get(f"{base}/")
            assert "<html" in index.lower()
            assets = set(re.findall(r'"(/?assets/[^"]+)"', index))
            assert {PurePosixPath(path).suffix for path in assets} >= {".js", ".css"}
            for path in assets:
                assert get(f"{base}/{path.lstrip('/')}")
            command = ("--url", program.http_url, "list_vhosts", "--formatter", "json")
            listed = run(installed / "leveretctl", *command)
            assert json.loads(listed) == [{"name": "/"}]
        finally:
            process.kill()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as response:
        return str(response.read().decode())
