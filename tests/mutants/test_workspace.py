from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import workspace
from tests.mutants.__main__ import results, sample
from tests.mutants.scope import Scope
from tests.mutants.workspace import MutmutFailedError, Workspace

MODULE = """\
from __future__ import annotations


def is_full(length: int, limit: int) -> bool:
    return length >= limit


def never_called() -> int:
    return 1
"""
TESTS = """\
from leveret.policies.limits import is_full


def test_it() -> None:
    assert is_full({length}, 3)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace for a project with one module, whose test does not try the limit itself."""
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    # The package `leveret` of this project has no plugin of pytest.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for folder in ("leveret", "policies", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "leveret/__init__.py").touch()
    (tmp_path / "leveret/policies").symlink_to("../policies")
    (tmp_path / "policies/limits.py").write_text(MODULE)
    (tmp_path / "tests/test_limits.py").write_text(TESTS.format(length=4))
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    made = Workspace(Scope("policies", ("policies/limits.py",), ("tests",)))
    made.prepare()
    return made


def test_mutants_are_named_tried_and_shown(made: Workspace) -> None:
    mutants = made.mutants(1)["policies/limits.py"]
    made.run(mutants, 1)
    outcomes = made.outcomes("policies/limits.py")
    assert sorted(outcomes) == sorted(mutants)
    # The one that compares by > instead of >=, and the one that returns 2.
    survivor, not_run = (
        "leveret.policies.limits.x_is_full__mutmut_1",
        "leveret.policies.limits.x_never_called__mutmut_1",
    )
    assert (outcomes[survivor], outcomes[not_run]) == ("survived", "no tests")
    diff = made.diff("policies/limits.py", survivor).splitlines()
    assert ("-    return length >= limit" in diff, "+    return length > limit" in diff) == (True, True)


def test_tests_that_fail_without_a_mutant_are_an_error(made: Workspace, tmp_path: Path) -> None:
    (tmp_path / "tests/test_limits.py").write_text(TESTS.format(length=2))
    with pytest.raises(MutmutFailedError, match=r"python -m pytest tests$"):
        made.run(made.mutants(1)["policies/limits.py"], 1)
    assert "failed to collect stats" in made.log.read_text()


def test_a_seed_chooses_the_same_mutants_each_time() -> None:
    mutants = {"b": [f"b.{number}" for number in range(50)], "a": [f"a.{number}" for number in range(50)]}
    chosen = sample(mutants, 10, seed=1)
    assert chosen == sample(dict(reversed(mutants.items())), 10, seed=1) != sample(mutants, 10, seed=2)
    assert len(set(chosen)) == 10
    assert sample(mutants, 0, seed=1) == sample(mutants, 100, seed=1) == [*mutants["a"], *mutants["b"]]


def test_what_was_not_tried_has_no_result() -> None:
    outcomes = {"a": "killed", "b": "not checked", "c": "survived", "d": "no tests"}
    assert results(outcomes, ["a", "b", "d"]) == ["killed", "no tests"]
