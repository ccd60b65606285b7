"""What the size limits measure, as functions of a file's text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Names that say nothing about what is inside, so that anything ends up there.
JUNK_DRAWERS: Final = frozenset(
    {"common", "helper", "helpers", "lib", "misc", "miscellaneous", "stuff", "util", "utilities", "utils"}
)


def function_lines(text: str) -> dict[str, int]:
    """Count the lines of each function and method from `def` on, its docstring left out.

    Returns:
        Lines by qualified name; of those with the same name, such as a property and its setter, the longest.
    """
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
    """Tell whether a module or folder is named for nothing in particular.

    Args:
        stem: Its name without suffix.
    """
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
