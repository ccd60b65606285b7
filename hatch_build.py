"""Build hook: compiles modules on the path of a message with mypyc, where a C compiler and Python's headers are found.

pyproject.toml lists the modules. Their code becomes one shared library; the functions by which Python loads them are in
small libraries beside it. All are in the folder `leveret/compiled`, in a checkout as in a wheel, with a manifest that
has the file of each module and a hash of each source. They are loaded by `leveret/compilation.py`. Without a compiler
nothing is compiled, and the manifest says why.

The environment variable LEVERET_COMPILE forbids compiling (0) or makes a build fail that cannot compile (1).
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_VARIABLE: Final = "LEVERET_COMPILE"
_ROOMS: Final = ("analytics", "broker", "policies", "protocol", "storage")
#: From the project's root.
_TARGET: Final = Path("leveret/compiled")
_MANIFEST: Final = "manifest.json"
_WORK: Final = Path("build/compile")
_LOG: Final = Path("build/compile.log")
#: What compiling needs beside hatchling; pamqp for its types.
_REQUIREMENTS: Final = ["mypy[mypyc]>=2.0", "setuptools>=80", "pamqp>=4.0.1"]
#: Of the shared library with the code of all modules.
_LIBRARY: Final = "leveret__mypyc"
#: Declares the functions that compiled code calls; in mypyc's folder of C.
_RUNTIME_HEADER: Final = "CPy.h"
#: How many files of C the code is compiled as, at least. Each of them reads all headers again, which takes longer than
#: the code of most modules; a few more than there are processors keep these busy to the end.
_UNITS: Final = 8
#: Leaves out passes of gcc that take an eighth of the time and save no message anything. Lets compiled functions call
#: each other directly: no other library is to replace one. Keeps what runs only before an exception apart from what
#: runs for each message, which becomes a quarter smaller; so a persistent message misses the processor's cache of
#: instructions a fifth less often. clang ignores the options that it does not know.
_COMPILER_OPTIONS: Final = [
    "-fno-tree-pta",
    "-fno-tree-dominator-opts",
    "-fvisibility=hidden",
    "-fno-plt",
    "-freorder-blocks-and-partition",
]
#: Functions of mypyc's that are called only before an exception is raised, or passed on.
_BEFORE_EXCEPTIONS: Final = ["CPy_AddTraceback", "CPy_AttributeError", "CPy_TypeError", "CPy_TypeErrorTraceback"]
_MYPY_OPTIONS: Final = ["--config-file=", "--strict", "--explicit-package-bases", "--ignore-missing-imports"]


class CompileHook(BuildHookInterface[Any]):
    """Compiles before a wheel is made, or an editable installation."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed for the build: nothing where nothing will be compiled."""
        return [] if self.target_name != "wheel" or _obstacle() else _REQUIREMENTS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the result to the wheel unless the installation is editable.

        Args:
            version: "standard" or "editable".
            build_data: How hatchling makes the wheel; changed in place.
        Raises:
            RuntimeError: It was demanded and is not possible.
        """
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        files = compile_modules(root, self.config["modules"])
        if version == "editable" or not files:
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(root / _TARGET / name): str(_TARGET / name) for name in files})


def compile_modules(root: Path, patterns: list[str]) -> list[str]:
    """Compile what is not compiled yet, and say in a line why nothing is compiled, if so.

    Args:
        root: The project's root.
        patterns: Of source files.
    Returns:
        Names of the files in `leveret/compiled`; none if nothing is compiled.
    Raises:
        RuntimeError: It was demanded and is not possible.
    """
    sources = _sources(root, patterns)
    target = root / _TARGET
    obstacle = _obstacle()
    if obstacle is None:
        wanted = _manifest(root, sources)
        if _read_manifest(target) != wanted:
            obstacle = _build(root, sources, target, wanted)
        if obstacle is None:
            return [_MANIFEST, *wanted["modules"].values()]
    if os.environ.get(_VARIABLE) == "1":
        raise RuntimeError(f"{_VARIABLE} is 1, but {obstacle}")
    sys.stderr.write(f"leveret is not compiled: {obstacle}\n")
    # Left as it is if compiling is forbidden: `LEVERET_COMPILE=0 make test` is not to undo `make setup`.
    if os.environ.get(_VARIABLE) != "0":
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _write_manifest(target, {"obstacle": obstacle})
    return []


def _sources(root: Path, patterns: list[str]) -> list[str]:
    """Return the source files that match, from the root. Packages themselves stay interpreted."""
    found = {str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}
    return sorted(path for path in found if not path.endswith("/__init__.py"))


def _obstacle() -> str | None:
    """Return why nothing can be compiled; None if it can."""
    if os.environ.get(_VARIABLE) == "0":
        return f"{_VARIABLE} is 0"
    if sys.implementation.name != "cpython":
        return f"mypyc needs CPython, this is {sys.implementation.name}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.is_file():
        return f"Python's headers are missing ({headers})"
    return None


def _manifest(root: Path, sources: list[str]) -> dict[str, Any]:
    """Return what the manifest says when all is compiled."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    modules = {_LIBRARY: f"{_LIBRARY}{suffix}"}
    hashes = {}
    for library, paths in _loaders(sources).items():
        modules |= {_module(path): f"{library}{suffix}" for path in paths}
    for path in sources:
        hashes[path] = importlib.util.source_hash((root / path).read_bytes()).hex()
    return {"suffix": suffix, "modules": modules, "sources": hashes}


def _module(path: str) -> str:
    """Return the name of a source file's module."""
    return "leveret." + path.removesuffix(".py").replace("/", ".")


def _loaders(sources: list[str]) -> dict[str, list[str]]:
    """Return source files by the library that Python loads their modules from.

    The function that Python calls has the last part of a module's name, so no two modules of one library share that.
    """
    libraries: dict[str, list[str]] = {}
    seen: Counter[str] = Counter()
    for path in sources:
        name = Path(path).stem
        seen[name] += 1
        libraries.setdefault(f"leveret__modules{seen[name]}", []).append(path)
    return libraries


def _read_manifest(target: Path) -> dict[str, Any] | None:
    try:
        manifest: dict[str, Any] = json.loads((target / _MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    complete = all((target / name).is_file() for name in manifest.get("modules", {}).values())
    return manifest if complete else None


def _write_manifest(target: Path, manifest: dict[str, Any]) -> None:
    (target / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def _build(root: Path, sources: list[str], target: Path, manifest: dict[str, Any]) -> str | None:
    """Compile everything, and replace the compiled modules by the new ones.

    Returns:
        What went wrong, if something did.
    """
    work = root / _WORK
    shutil.rmtree(work, ignore_errors=True)
    package = work / "leveret"
    package.mkdir(parents=True)
    # Not the package's own __init__.py: it names the whole broker, which mypy would read.
    (package / "__init__.py").touch()
    for room in _ROOMS:
        (package / room).symlink_to(root / room)
    command = [sys.executable, str(Path(__file__).resolve()), json.dumps(sources)]
    log = root / _LOG
    with log.open("wb") as output:
        done = subprocess.run(command, cwd=work, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        return f"compiling failed, see {log}"
    fresh = work / "compiled"
    fresh.mkdir()
    for file in set(manifest["modules"].values()):
        (work / "lib" / file).rename(fresh / file)
    _write_manifest(fresh, manifest)
    # New files instead of overwritten ones: a running broker keeps those that it has loaded.
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    shutil.rmtree(work)
    return None


def _run_mypyc(sources: list[str]) -> None:
    """Translate and compile in the current directory, which has the sources as the package `leveret`."""
    from setuptools import Distribution, Extension  # first: mypyc looks whether it is there

    from mypyc.build import mypycify  # isort: skip

    library, *modules = mypycify(
        [*_MYPY_OPTIONS, *(f"leveret/{path}" for path in sources)],
        group_name="leveret",
        target_dir="c",
        # "2" takes a quarter longer to compile, and a message costs the same.
        opt_level="1",
        # A file of C for each module, of which _joined makes a few of one size.
        multi_file=True,
        # Without line numbers for debuggers: they make the libraries several times as large.
        debug_level="0",
    )
    library.extra_compile_args += _COMPILER_OPTIONS
    head = _head(Path(library.include_dirs[0], _RUNTIME_HEADER).read_text("utf-8"))
    library.sources = _joined(library.sources, max(_UNITS, os.cpu_count() or 1), head)
    extensions = [library]
    loader_of = {extension.name: extension.sources for extension in modules}
    for name, paths in _loaders(sources).items():
        source = Path("c", f"{name}.c")
        source.write_text("".join(_loader(loader_of[_module(path)], number) for number, path in enumerate(paths)))
        extensions.append(Extension(name, [str(source)], extra_compile_args=library.extra_compile_args))
    command = Distribution({"name": "leveret", "ext_modules": extensions}).get_command_obj("build_ext")
    build_extensions = command.build_extensions

    def build_in_parallel() -> None:
        command.compiler.compile = _in_parallel(command.compiler.compile)
        build_extensions()

    command.build_extensions = build_in_parallel
    command.build_lib, command.build_temp = "lib", "objects"
    command.ensure_finalized()
    command.run()


def _head(runtime_header: str) -> str:
    """Return C that declares the functions called before exceptions as cold, those that mypyc's header has."""
    declared = [name for name in _BEFORE_EXCEPTIONS if f" {name}(" in runtime_header]
    lines = [f"extern __typeof__({name}) {name} __attribute__((cold));" for name in declared]
    return "\n".join([f"#include <{_RUNTIME_HEADER}>", *lines, ""])


def _joined(sources: list[str], count: int, head: str) -> list[str]:
    """Write files of C of about one size that begin with a head and include all the given ones; return their names."""
    contents: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for source in sorted(sources, key=os.path.getsize, reverse=True):
        smallest = sizes.index(min(sizes))
        contents[smallest].append(source)
        sizes[smallest] += os.path.getsize(source)
    names = []
    for number, included in enumerate(filter(None, contents)):
        names.append(f"c/joined{number}.c")
        includes = "".join(f'#include "{os.path.basename(source)}"\n' for source in included)
        Path(names[-1]).write_text(head + includes)
    return names


def _loader(sources: list[str], number: int) -> str:
    """Return C that includes the function which loads a module, as mypyc has written it.

    Each of these files defines a `PyInit___init__` too, for compilers other than those for Python on POSIX.
    """
    lines = [f'#include "{os.path.relpath(source, "c")}"' for source in sources]
    define = f"#define PyInit___init__ PyInit___init__{number}"
    return "\n".join([define, *lines, "#undef PyInit___init__", ""])


def _in_parallel(compile_sources: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Return a form of a compiler's method that compiles the sources of an extension side by side."""

    def compile_side_by_side(sources: list[str], **options: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = pool.map(lambda source: compile_sources([source], **options), sources)
            return [file for files in done for file in files]

    return compile_side_by_side


if __name__ == "__main__":
    # mypy makes millions of objects, which live as long as this process: to look for garbage among them, and to free
    # them one by one at the end, would take some seconds.
    gc.disable()
    _run_mypyc(json.loads(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
