"""Compiled modules: which form is loaded, what is said of it, and what the build hook does without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from leveret import compilation
from leveret.broker.version import VERSION
from tests.packaging.distributions import ROOMS, ROOT, build, committed

_FOLDER = ROOT / "leveret/compiled"
_PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["hooks"]["custom"][
    "modules"
]
_SHOW = "import leveret; from leveret.protocol import methods; print(leveret.compilation.describe(), methods.__file__)"

needs_compiled = pytest.mark.skipif(compilation.form() != "compiled", reason="leveret is not compiled here")


def python(
    program: str, place: Path, arguments: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, whose path begins with a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "LEVERET_COMPILE"} | variables
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=place,
        env={**environment, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, as `leveret` with everything in it."""
    package = tmp_path / "leveret"
    for name in committed():
        if name.startswith(("leveret/", *(f"{room}/" for room in ROOMS))) and name.endswith(".py"):
            target = package / name.removeprefix("leveret/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    return tmp_path


def write_manifest(copy: Path, text: str) -> None:
    (copy / "leveret/compiled").mkdir()
    (copy / "leveret/compiled/manifest.json").write_text(text, "utf-8")


def test_without_compiled_modules(copy: Path) -> None:
    done = python(_SHOW, copy)
    source = copy / "leveret/protocol/methods.py"
    assert (done.stdout, done.stderr) == (f"pure Python: it was installed without compiling {source}\n", "")
    done = python(_SHOW, copy, LEVERET_COMPILE="1")
    assert "LEVERET_COMPILE is 1, but leveret is not compiled: it was installed without compiling" in done.stderr


def test_what_the_build_hook_said_is_told(copy: Path) -> None:
    write_manifest(copy, json.dumps({"obstacle": "there is no C compiler (cc)"}))
    assert python(_SHOW, copy).stdout.startswith("pure Python: there is no C compiler (cc) ")


def test_modules_of_another_python_are_not_loaded(copy: Path) -> None:
    write_manifest(
        copy,
        json.dumps({"suffix": ".cpython-27.so", "modules": {"leveret.protocol.methods": "x"}, "sources": {}}),
    )
    assert python(_SHOW, copy).stdout.startswith("pure Python: it was compiled for another Python (.cpython-27.so) ")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_manifest_is_none(copy: Path, text: str) -> None:
    write_manifest(copy, text)
    assert python(_SHOW, copy).stdout.startswith("pure Python: ")


@needs_compiled
def test_compiled_modules_are_loaded_until_a_source_changes(copy: Path) -> None:
    shutil.copytree(_FOLDER, copy / "leveret/compiled")
    done = python(_SHOW, copy)
    assert (done.stdout.split(" ")[0], done.stderr) == ("compiled", "")
    assert done.stdout.rstrip().endswith(".so")
    assert python(_SHOW, copy, LEVERET_COMPILE="0").stdout.startswith("pure Python: LEVERET_COMPILE is 0 ")
    with (copy / "leveret/protocol/constants.py").open("a") as source:
        source.write("# changed\n")
    text = "pure Python: protocol/constants.py has changed since it was compiled "
    assert python(_SHOW, copy).stdout.startswith(text)


@needs_compiled
def test_each_compiled_module_is_itself(copy: Path) -> None:
    shutil.copytree(_FOLDER, copy / "leveret/compiled")
    modules: dict[str, str] = json.loads((_FOLDER / "manifest.json").read_text("utf-8"))["modules"]
    names = sorted(name for name in modules if name.startswith("leveret."))
    assert names
    program = "import sys, importlib\nfor name in sys.argv[1:]: print(importlib.import_module(name).__name__)"
    done = python(program, copy, names, LEVERET_COMPILE="1")
    assert (done.stdout.splitlines(), done.stderr) == (names, "")


@needs_compiled
def test_no_other_library_can_replace_a_compiled_function() -> None:
    """So that they call each other directly: the library offers only what Python loads it by."""
    (library,) = _FOLDER.glob("leveret__mypyc.*")
    shown = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", library], capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["PyInit_leveret__mypyc"]


@pytest.mark.skipif("STRICT_SKIPS" not in os.environ, reason="only asked for where the whole suite is run")
def test_the_suite_runs_compiled_where_there_is_a_compiler() -> None:
    if os.environ.get("LEVERET_COMPILE") != "0" and shutil.which("cc"):
        assert compilation.describe() == "compiled"


def test_a_build_without_a_compiler_goes_on(checkout: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LEVERET_COMPILE"}
    source, dist = tmp_path / "source", tmp_path / "dist"
    shutil.copytree(checkout, source, symlinks=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(dist), str(source)]
    for variables, text in (
        ({"CC": "no-such-compiler"}, "leveret is not compiled: there is no C compiler (no-such-compiler)"),
        ({"LEVERET_COMPILE": "0"}, "leveret is not compiled: LEVERET_COMPILE is 0"),
    ):
        done = subprocess.run(
            command, env={**environment, **variables}, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert text in done.stderr
    assert [path.name for path in dist.iterdir()] == [f"leveret-{VERSION}-py3-none-any.whl"]
    demanded = {**environment, "CC": "no-such-compiler", "LEVERET_COMPILE": "1"}
    done = subprocess.run(command, env=demanded, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert "LEVERET_COMPILE is 1, but there is no C compiler (no-such-compiler)" in done.stdout + done.stderr


@needs_compiled
def test_a_compiled_wheel_has_what_was_compiled(checkout: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(checkout, source, symlinks=True)
    # What is compiled already is not compiled again, which takes a minute.
    shutil.copytree(_FOLDER, source / "leveret/compiled")
    (wheel,) = build(source, tmp_path / "dist", "--wheel", compiled=True).iterdir()
    assert "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name).name for name in archive.namelist() if name.startswith("leveret/compiled/")}
        archive.extractall(tmp_path / "unpacked")
    assert packed == {path.name for path in _FOLDER.iterdir()}
    assert python(_SHOW, tmp_path / "unpacked").stdout.startswith("compiled ")


@needs_compiled
@pytest.mark.skipif(sys.platform != "linux", reason="a name with the C library is of Linux only")
def test_a_compiled_wheel_runs_with_the_c_library_that_its_name_says(checkout: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(checkout, source, symlinks=True)
    shutil.copytree(_FOLDER, source / "leveret/compiled")
    # What it is run with is installed: these tests run in it.
    command = ["make", "dist", f"VENV={sys.prefix}", f"--old-file={sys.prefix}/installed-test"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in (source / "dist").iterdir())
    assert len(names) == 3, names
    assert "manylinux" in names[0]
    assert names[1:] == [f"leveret-{VERSION}-py3-none-any.whl", f"leveret-{VERSION}.tar.gz"]


def test_every_pattern_has_files() -> None:
    assert [pattern for pattern in _PATTERNS if not list(ROOT.glob(pattern))] == []


def test_no_coroutine_is_compiled() -> None:
    """A native coroutine that is cancelled can crash."""
    files = [path for pattern in _PATTERNS for path in ROOT.glob(pattern)]
    assert len(files) > 50
    assert not [path for path in files if "async def" in path.read_text("utf-8")]
