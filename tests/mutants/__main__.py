"""The command of `make mutants`: changes modules in small ways, and shows which changes no test notices.

Each changed form of a function is a mutant. Those tests are run on it that call the function, the quickest first, until
one fails, which kills the mutant. A mutant that survives shows a test that is missing, or a change that makes no
difference.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tests.mutants.report import SURVIVED, table
from tests.mutants.scope import ROOT, Scope, UnknownPlaceError, scope_of
from tests.mutants.workspace import MutmutFailedError, Workspace

_PLACES: Final = ["storage/stores", "broker/core/queues", "policies"]


def main() -> int:
    """Run the command; return its exit status: 2 if there is no result."""
    options = _options()
    try:
        for scope in [scope_of(place) for place in options.places or _PLACES]:
            _try(scope, options)
    except (UnknownPlaceError, MutmutFailedError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"modules or folders (default: {' '.join(_PLACES)})")
    parser.add_argument(
        "--mutants", type=int, default=200, help="how many to try of each place; 0: all (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="says which ones (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="how many to try at a time (default: %(default)s)")
    return parser.parse_args()


def _try(scope: Scope, options: argparse.Namespace) -> None:
    workspace = Workspace(scope)
    workspace.prepare()
    mutants = workspace.mutants(options.workers)
    chosen = sample(mutants, options.mutants, options.seed)
    total = sum(map(len, mutants.values()))
    print(f"\n{scope.name}: {len(chosen)} of {total} mutants, seed {options.seed}; {' '.join(scope.tests)}", flush=True)
    if not chosen:
        return
    workspace.run(chosen, options.workers)
    outcomes = {module: workspace.outcomes(module) for module in scope.modules}
    tried = {module: results(found, chosen) for module, found in outcomes.items()}
    if left := len(chosen) - sum(map(len, tried.values())):
        print(f"interrupted; {left} of them have not been tried")
    print(f"\n{table(scope.name, tried)}")
    diffs = [
        f"# {name}: {found[name]}\n{workspace.diff(module, name)}\n"
        for module, found in outcomes.items()
        for name in chosen
        if found.get(name) in SURVIVED
    ]
    survivors = workspace.folder / "survivors.diff"
    survivors.write_text("\n".join(diffs))
    print(f"\nsurvivors: {survivors.relative_to(ROOT)}", flush=True)


def results(outcomes: Mapping[str, str], chosen: Collection[str]) -> list[str]:
    """Return what became of those of a module's mutants that were chosen, and tried before an interruption."""
    return [outcome for name, outcome in outcomes.items() if name in chosen and outcome != "not checked"]


def sample(mutants: Mapping[str, Sequence[str]], count: int, seed: int) -> list[str]:
    """Return names of mutants that are chosen at random, the same ones each time."""
    names = [name for module in sorted(mutants) for name in mutants[module]]
    if not count or count >= len(names):
        return names
    return sorted(random.Random(seed).sample(names, count))


if __name__ == "__main__":
    sys.exit(main())
