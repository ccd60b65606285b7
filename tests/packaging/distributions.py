"""What `make dist` builds, and environments that it is installed in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from leveret.broker.version import VERSION

ROOT = Path(__file__).parents[2]
#: What a wheel says of itself that was built without a compiler.
PURE = "pure Python: it was installed without compiling"
ROOMS = ("analytics", "broker", "policies", "protocol", "storage")

_SECONDS = 600


@cache
def committed() -> list[str]:
    """The files of a clean checkout, and those about to be committed."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return sorted(name for name in set(done.stdout.split("\0")) if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout."""
    made = tmp_path_factory.mktemp("checkout")
    for name in committed():
        target = made / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    for room in ROOMS:
        (made / "leveret" / room).symlink_to((ROOT / "leveret" / room).readlink())
    return made


@pytest.fixture(scope="session")
def dist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, the wheel made from the source distribution."""
    return build(checkout, tmp_path_factory.mktemp("dist"))


def build(source: Path, target: Path, *options: str, compiled: bool = False) -> Path:
    """Build distributions into a folder, and return it."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(target), str(source)]
    environment = {**os.environ, "LEVERET_COMPILE": "1" if compiled else "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="session")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    target = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(dist / f"leveret-{VERSION}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / f"leveret-{VERSION}"


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    return dist / f"leveret-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment that has the wheel and what it depends on, and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("environment"), dependencies("leveret", set()))


def install(wheel: Path, environment: Path, names: Iterable[str]) -> Path:
    """Make an environment with the wheel in it.

    Other distributions are those of this environment, by a link each, so that nothing has to be fetched.
    """
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in names:
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


def run(program: Path, *arguments: str, place: Path | None = None) -> str:
    """Run an installed program, away from the sources; return what it prints."""
    done = subprocess.run(
        [program, *arguments],
        cwd=place or program.parent,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def clean() -> dict[str, str]:
    """The environment without what would lead to the sources."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LEVERET_", "PYTHON"))}
