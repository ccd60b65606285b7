"""Loads the compiled form of modules, where there is one and it is the form of the present sources.

The build hook (`hatch_build.py`) leaves compiled modules in the folder `compiled` here, with a manifest. If a source
has changed since, all modules are loaded from their sources: compiled modules rely on each other's layout, so they are
never mixed. LEVERET_COMPILE=0 asks for the sources; with LEVERET_COMPILE=1 it is an error if they have to be used.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import source_hash, spec_from_file_location
from types import ModuleType
from typing import Any, Final

# Each import costs every program that uses leveret, so this module does without pathlib and importlib.abc.
_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__))
_FOLDER: Final = os.path.join(_PACKAGE, "compiled")
_MANIFEST: Final = os.path.join(_FOLDER, "manifest.json")
_VARIABLE: Final = "LEVERET_COMPILE"


class _CompiledModules:
    """Finds compiled modules; a meta path finder."""

    def __init__(self) -> None:
        #: File by module; None before the first module is looked for.
        self._modules: dict[str, str] | None = None
        #: Why no modules are compiled; empty if they are.
        self._obstacle = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the compiled form of a module is; None if it has none."""
        if not fullname.startswith("leveret"):
            return None
        file = self.modules().get(fullname)
        if file is None:
            return None
        location = os.path.join(_FOLDER, file)
        return spec_from_file_location(fullname, location, loader=ExtensionFileLoader(fullname, location))

    def modules(self) -> dict[str, str]:
        """Return the file of each module that is compiled.

        Raises:
            ImportError: LEVERET_COMPILE is 1, and none are.
        """
        if self._modules is None:
            self._modules, self._obstacle = _find_modules()
            if self._obstacle and os.environ.get(_VARIABLE) == "1":
                raise ImportError(f"{_VARIABLE} is 1, but leveret is not compiled: {self._obstacle}")
        return self._modules

    def obstacle(self) -> str:
        """Return why no modules are compiled; empty if they are."""
        self.modules()
        return self._obstacle


def main() -> None:
    """Say whether modules are compiled; used by the Makefile.

    Raises:
        SystemExit: 1 if compiling may help.
    """
    modules, obstacle = _find_modules()
    if not modules:
        sys.stdout.write(f"leveret is not compiled: {obstacle}\n")
        sys.exit(os.environ.get(_VARIABLE) != "0" and not _is_recorded())


def _is_recorded() -> bool:
    """Return whether the build hook has tried to compile, in vain."""
    try:
        return "obstacle" in json.loads(_read(_MANIFEST))
    except (OSError, ValueError, TypeError):
        return False


def _find_modules() -> tuple[dict[str, str], str]:
    """Return the file of each compiled module; if there are none, or none that may be used, why not."""
    if os.environ.get(_VARIABLE) == "0":
        return {}, f"{_VARIABLE} is 0"
    try:
        manifest: dict[str, Any] = json.loads(_read(_MANIFEST))
        if "obstacle" in manifest:
            return {}, manifest["obstacle"]
        if manifest["suffix"] not in EXTENSION_SUFFIXES:
            return {}, f"it was compiled for another Python ({manifest['suffix']})"
        for name, expected in manifest["sources"].items():
            if source_hash(_read(os.path.join(_PACKAGE, name))).hex() != expected:
                return {}, f"{name} has changed since it was compiled"
        return manifest["modules"], ""
    except OSError:
        return {}, "it was installed without compiling"
    except (ValueError, KeyError, TypeError):
        return {}, f"{_MANIFEST} is damaged"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


_FINDER: Final = _CompiledModules()


def form() -> str:
    """Return "compiled" or "pure Python"."""
    return "pure Python" if _FINDER.obstacle() else "compiled"


def describe() -> str:
    """Return the form, and why it is pure Python."""
    obstacle = _FINDER.obstacle()
    return f"pure Python: {obstacle}" if obstacle else "compiled"


# Before the first module of the package is imported: leveret/__init__.py imports this one first.
sys.meta_path.insert(0, _FINDER)
