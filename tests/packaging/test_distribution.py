"""What `make dist` builds: it holds everything, and works where nothing else of the project is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from email.parser import BytesParser
from email.policy import default
from pathlib import Path, PurePosixPath

from leveret.broker.version import VERSION
from tests.integration.program import Program
from tests.packaging.distributions import PURE, ROOMS, ROOT, build, clean, committed, run

# --- what is in them ------------------------------------------------------------------------------------------------


def test_wheel_has_all_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    information = f"leveret-{VERSION}.dist-info/"
    packed = {name for name in names if not name.startswith(information)}
    rooms = tuple(f"{room}/" for room in ROOMS)
    expected = {f"leveret/{name}" for name in committed() if name.startswith(rooms)}
    assert packed == expected | {name for name in committed() if name.startswith("leveret/")}
    assert {"leveret/py.typed", "leveret/broker/management/http/openapi.yaml"} <= packed
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


def test_wheel_is_the_same_from_a_checkout_and_from_the_source_distribution(
    wheel: Path, checkout: Path, unpacked: Path, tmp_path: Path
) -> None:
    assert not any((unpacked / "leveret" / room).exists() for room in ROOMS)
    for name, source in (("checkout", checkout), ("unpacked", unpacked)):
        other = build(source, tmp_path / name, "--wheel") / wheel.name
        assert contents(other) == contents(wheel), name


def test_the_image_is_built_from_enough(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """What .dockerignore lets through makes the same wheel."""
    context = tmp_path / "context"
    context.mkdir()
    everything, *names = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert everything == "*"
    for name in (name.removeprefix("!") for name in names if name.startswith("!")):
        (context / name).parent.mkdir(exist_ok=True)
        if (checkout / name).is_dir():
            shutil.copytree(checkout / name, context / name, symlinks=True)
        else:
            shutil.copyfile(checkout / name, context / name)
    assert contents(build(context, tmp_path / "dist", "--wheel") / wheel.name) == contents(wheel)


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_source_distribution_runs_with_its_links(unpacked: Path) -> None:
    """Its tests need them: modules have the same names there as in the installed package."""
    subprocess.run(["make", "--silent", "links"], cwd=unpacked, timeout=60, check=True)
    program = "import leveret, leveret.broker.program; print(leveret.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=unpacked, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{unpacked}/leveret/__init__.py\n"


# --- what it does ---------------------------------------------------------------------------------------------------


def test_programs_know_their_version(installed: Path) -> None:
    assert run(installed / "leveret", "--version") == f"leveret {VERSION} ({PURE})\n"
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
            assert process.stdout is not None
            program = Program(process, process.stdout, log)
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
