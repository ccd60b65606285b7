from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import workspace
from tests.mutants.report import table
from tests.mutants.scope import ROOT, Scope, UnknownPlaceError, scope_of
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
    line = table("policies", {"policies/limits.py": outcomes.values()}).splitlines()[-1].split()
    assert (line[0], line[1], line[4:6]) == ("policies/limits.py", str(len(mutants)), ["1", "1"])
    diff = made.diff("policies/limits.py", survivor).splitlines()
    assert ("-    return length >= limit" in diff, "+    return length > limit" in diff) == (True, True)


def test_tests_that_fail_without_a_mutant_are_an_error(made: Workspace, tmp_path: Path) -> None:
    (tmp_path / "tests/test_limits.py").write_text(TESTS.format(length=2))
    with pytest.raises(MutmutFailedError, match=r"python -m pytest tests$"):
        made.run(made.mutants(1)["policies/limits.py"], 1)
    assert "failed to collect stats" in made.log.read_text()


def test_places_have_their_modules_and_tests() -> None:
    scope = scope_of("storage/stores")
    assert "storage/stores/segment_store.py" in scope.modules
    assert "tests/unit/storage/stores" in scope.tests
    assert [test for test in scope.tests if not (ROOT / test).exists()] == []
    assert scope_of("protocol/methods.py").tests == ("tests/unit/protocol",)
    for place in ("storage/nothing.py", "/tmp", "tests/mutants"):
        with pytest.raises(UnknownPlaceError, match="name one of analytics, broker, policies, protocol, storage"):
            scope_of(place)
