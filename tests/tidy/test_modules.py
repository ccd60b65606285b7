"""Functions, names and imports.

Functions stay small enough to be read at once: 40 lines are aimed at. Modules that import each other in a circle can
only be understood, tested and moved together. Imports behind TYPE_CHECKING and inside functions count: they hide a
circle from the interpreter, not from the reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import grimp

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("analytics", "broker", "leveret", "policies", "protocol", "storage", "tests", "docker")

FUNCTION_LINES_MAX: Final = 70
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Names that say nothing about what is inside, so that anything ends up there.
JUNK_DRAWERS: Final = frozenset(
    {"common", "helper", "helpers", "lib", "misc", "miscellaneous", "stuff", "util", "utilities", "utils"}
)


def function_lines(text: str) -> dict[str, int]:
    """Count the lines of each function and method from `def` on, its docstring left out."""
    lines: dict[str, int] = {}
    for name, node in _definitions(ast.parse(text), ""):
        if isinstance(node, Function):
            lines[name] = max(lines.get(name, 0), _length(node))
    return lines


def only_reexports(text: str) -> bool:
    """Tell whether a module is empty, or imports names to hand them on and does nothing else.

    It may hand them on when they are asked for (`__getattr__`), and refuse to be imported by a wrong name.
    """
    return all(_is_reexport(node) for node in ast.parse(text).body)


def is_junk_drawer(stem: str) -> bool:
    """Tell whether a module or folder is named for nothing in particular."""
    return not JUNK_DRAWERS.isdisjoint(stem.lower().removeprefix("test_").split("_"))


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{prefix}{node.name}"
            yield name, node
            yield from _definitions(node, f"{name}.")
        else:
            yield from _definitions(node, prefix)


def _length(node: Function) -> int:
    first = node.body[0]
    docstring = 0
    if ast.get_docstring(node, clean=False) is not None:
        docstring = _span(first)
    return _span(node) - docstring


def _span(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _is_reexport(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__getattr__", "__dir__")
    if isinstance(node, ast.If):
        condition = ast.unparse(node.test)
        if condition == "TYPE_CHECKING":
            return all(isinstance(each, ast.AnnAssign) or _is_reexport(each) for each in [*node.body, *node.orelse])
        return condition.startswith("__name__ != ") and all(isinstance(each, ast.Raise) for each in node.body)
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or isinstance(node, ast.Import | ast.ImportFrom)


def sources(*suffixes: str) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            # Maven puts generated sources under target/.
            if path.suffix in suffixes and path.is_file() and "target" not in path.parts:
                yield path


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in sources(".py")
        for name, lines in function_lines(path.read_text("utf-8")).items()
        if lines > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_names_say_what_is_inside() -> None:
    junk = {
        str(path.relative_to(ROOT))
        for path in sources(".py", ".java", ".js", ".sh")
        if any(is_junk_drawer(Path(part).stem) for part in path.relative_to(ROOT).parts)
    }
    assert junk == set()


def test_packages_are_empty_or_reexport() -> None:
    busy = [
        str(path.relative_to(ROOT))
        for path in sources(".py")
        if path.name == "__init__.py" and not only_reexports(path.read_text("utf-8"))
    ]
    assert busy == []


def test_modules_import_each_other_one_way() -> None:
    graph = grimp.build_graph("leveret", cache_dir=None)
    groups = {
        frozenset({module} | (graph.find_upstream_modules(module) & graph.find_downstream_modules(module)))
        for module in graph.modules
    }
    assert [sorted(group) for group in groups if len(group) > 1] == []


#: Folders that import each other and should not; a folder that is among them no more leaves this list.
KNOWN_CIRCLES: Final = frozenset({frozenset({"leveret.storage.disk", "leveret.storage.readers"})})


def test_folders_import_each_other_one_way() -> None:
    """Folders are floors: a reader can begin at the bottom."""
    graph = grimp.build_graph("leveret", cache_dir=None)
    parents = {module.rpartition(".")[0] for module in graph.modules}
    imports: dict[str, set[str]] = {parent: set() for parent in parents}
    for module in graph.modules:
        importer = _folder(module, parents)
        for imported in graph.find_modules_directly_imported_by(module):
            folder = _folder(imported, parents)
            if not f"{importer}.".startswith(f"{folder}.") and not f"{folder}.".startswith(f"{importer}."):
                imports[importer].add(folder)
    reached = {folder: _reached(folder, imports) for folder in imports}
    circles = {frozenset(each for each in reached[folder] if folder in reached[each]) for folder in imports}
    assert {circle for circle in circles if circle} <= KNOWN_CIRCLES


def _folder(module: str, parents: set[str]) -> str:
    return module if module in parents else module.rpartition(".")[0]


def _reached(folder: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the folders that a folder imports, directly or not."""
    found: set[str] = set()
    left = [folder]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left += new
    return found
