"""The package `leveret` in a checkout: its names, and that each module has one only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import leveret
from leveret.broker import embedded, embedded_thread, pytest_plugin
from leveret.broker.version import VERSION
from tests.packaging.distributions import ROOMS, ROOT, dependencies
from tests.support.documentation import block

_CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8")


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, whose path begins with the checkout."""
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def test_public_names() -> None:
    assert leveret.Leveret is embedded.Leveret
    assert leveret.LeveretThread is embedded_thread.LeveretThread
    assert leveret.testing.leveret_url is pytest_plugin.leveret_url
    assert leveret.__version__ == VERSION
    assert set(leveret.__all__) <= set(dir(leveret))
    with pytest.raises(AttributeError, match="module 'leveret' has no attribute 'nothing'"):
        _ = leveret.nothing  # type: ignore[attr-defined]


def test_analytics_by_its_public_name() -> None:
    done = python(
        "import leveret, leveret.analytics.spark.session as own; print(leveret.analytics.register is own.register)"
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_what_scan_lacks_is_said() -> None:
    lines = (
        "import sys",
        "sys.modules['pyarrow'] = None",
        "import leveret",
        "try: leveret.scan",
        "except ImportError as e: print(e)",
    )
    done = python("\n".join(lines))
    assert done.stdout == "leveret.scan needs the Python package pyarrow: pip install 'leveret[arrow]'\n"


def test_the_package_alone_imports_nothing_of_ours() -> None:
    done = python("import sys, leveret; print(*sorted(name for name in sys.modules if name.startswith('leveret')))")
    assert done.stdout == "leveret leveret.compilation\n"


def test_storage_and_analytics_need_none_of_the_brokers_libraries() -> None:
    """A worker of Spark has Spark, Arrow and the wheel."""
    modules = [
        "leveret." + str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for room in ("analytics", "storage")
        for path in (ROOT / room).rglob("*.py")
    ]
    libraries = ("aiohttp", "pamqp", "prometheus_client", "regex", "uvloop", "yaml", "leveret.broker")
    program = f"import sys, {', '.join(sorted(modules))}\n"
    done = python(program + f"print(*(name for name in {libraries} if name in sys.modules))")
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_has_a_second_name(room: str) -> None:
    """The checkout is in the path of what runs there, so that its folders could be imported by themselves."""
    for program in (f"import {room}", f"import leveret.{room}, {room}", f"from {room} import nothing"):
        done = python(program)
        text = f"ImportError: {room} is a folder of the package leveret: import leveret.{room} instead"
        assert done.stderr.rstrip().endswith(text)
    assert room not in sys.modules


@pytest.mark.parametrize("room", ROOMS)
def test_ruff_refuses_the_second_name(room: str) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for line in (f"import {room}", f"from {room} import x", f"import {room}.x", f"from {room}.x import y"):
        command = [str(ruff), "check", "--select", "TID251", "--stdin-filename", "tests/some.py", "-"]
        done = subprocess.run(command, cwd=ROOT, input=line, capture_output=True, text=True, timeout=300, check=False)
        assert f"Import leveret.{room} instead." in done.stdout, line


def test_the_folder_has_links_re_exports_and_what_loads_compiled_modules() -> None:
    folder = ROOT / "leveret"
    links = {path.name: os.readlink(path) for path in folder.iterdir() if path.is_symlink()}
    assert links == {room: f"../{room}" for room in ROOMS}
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "compilation.py", "py.typed", "testing.py"}


def test_documented_interface() -> None:
    text = (ROOT / "docs/getting-started.md").read_text("utf-8")
    named = set(re.findall(r"`leveret\.(\w+)[.\w]*`", text.partition("## The Python interface")[2]))
    assert named | {"__version__"} == set(leveret.__all__)
    assert "leveret.analytics.register(spark)" in block("python", "addPyFile")


# --- constraints --------------------------------------------------------------------------------------------------


def test_constraints_pin_everything_that_is_installed_for_tests() -> None:
    lines = [line for line in _CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {canonical(line.partition("==")[0]) for line in lines}
    assert {canonical(name) for name in dependencies("leveret", {"test"})} - {"leveret"} <= pinned


def test_make_installs_them() -> None:
    installs = re.findall(r"pip install --quiet (.*)", (ROOT / "Makefile").read_text("utf-8"))
    # Those of all commands, and `make constraints`, which looks for newer ones.
    assert ["--constraint constraints.txt" in line for line in installs] == [True, False]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
