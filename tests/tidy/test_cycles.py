"""Modules do not import each other in a circle, not even for the type checker alone.

Modules in a circle can only be understood, tested and moved together. Imports behind TYPE_CHECKING and inside functions
count: they hide a circle from the interpreter, not from the reader.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import grimp

# Package -> how many of its modules are in a circle. These are to be taken apart. The table may only shrink: lower the
# number with each module that gets out, and remove the row with the last one.
MODULES_IN_CYCLES: Final[dict[str, int]] = {
    "leveret.broker.session": 4,
}


def cycles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    groups = {
        frozenset({module} | (graph.find_upstream_modules(module) & graph.find_downstream_modules(module)))
        for module in graph.modules
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def package(module: str) -> str:
    """Return the package of a module; of one right in `broker.core`, the module itself, which is a subject there."""
    parent = module.rpartition(".")[0]
    return module if parent == "leveret.broker.core" else parent


def test_modules_import_each_other_one_way() -> None:
    found = cycles(grimp.build_graph("leveret", cache_dir=None))
    counts = Counter(package(module) for group in found for module in group)
    assert dict(sorted(counts.items())) == MODULES_IN_CYCLES, "\n".join(["modules in a circle:", *map(str, found)])


def test_a_cycle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "f"), ("f", "e")]:
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == [["b", "c"], ["e", "f"]]
