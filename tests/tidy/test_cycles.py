"""Modules do not import each other in a circle, not even for the type checker alone.

Modules in a circle can only be understood, tested and moved together. Imports behind TYPE_CHECKING and inside functions
count: they hide a circle from the interpreter, not from the reader.
"""

from __future__ import annotations

import grimp


def cycles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    groups = {
        frozenset({module} | (graph.find_upstream_modules(module) & graph.find_downstream_modules(module)))
        for module in graph.modules
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def test_modules_import_each_other_one_way() -> None:
    assert cycles(grimp.build_graph("leveret", cache_dir=None)) == []


def test_a_cycle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "f"), ("f", "e")]:
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == [["b", "c"], ["e", "f"]]
