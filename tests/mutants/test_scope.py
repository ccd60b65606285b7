from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.scope import UnknownPlaceError, scope_of


def make(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def test_a_folder_has_its_modules_and_the_tests_that_mirror_it(tmp_path: Path) -> None:
    make(
        tmp_path,
        "policies/__init__.py",
        "policies/keys.py",
        "policies/deep/ages.py",
        "tests/unit/policies/test_keys.py",
    )
    scope = scope_of("policies/", tmp_path)
    assert (scope.name, scope.modules) == ("policies", ("policies/deep/ages.py", "policies/keys.py"))
    assert scope.tests == ("tests/unit/policies",)


def test_a_module_has_the_tests_of_the_nearest_folder_around_it(tmp_path: Path) -> None:
    make(tmp_path, "protocol/frames/reading.py", "tests/unit/protocol/test_frames.py")
    scope = scope_of("protocol/frames/reading.py", tmp_path)
    assert (scope.modules, scope.tests) == (("protocol/frames/reading.py",), ("tests/unit/protocol",))


def test_what_other_tests_are_about_has_those_too() -> None:
    assert scope_of("storage/stores").tests == (
        "tests/unit/storage/stores",
        "tests/contract/test_damaged_store.py",
        "tests/contract/test_looking.py",
        "tests/contract/test_message_store.py",
        "tests/unit/storage/readers/test_kept_for_readers.py",
        "tests/unit/storage/test_engine.py",
    )
    assert "tests/contract/test_exchange_types.py" in scope_of("broker/core/exchanges/topic.py").tests
    assert scope_of("policies").tests == ("tests/unit/policies",)


@pytest.mark.parametrize(
    "place", ["storage/nothing", "storage/nothing.py", "/tmp", ".", "tests/mutants", "leveret/policies"]
)
def test_other_places_are_refused(place: str) -> None:
    with pytest.raises(UnknownPlaceError, match="name one of broker, policies, protocol, storage"):
        scope_of(place)


def test_a_module_without_tests_around_it_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "policies/keys.py")
    with pytest.raises(UnknownPlaceError, match="no folder of tests/unit mirrors policies/keys"):
        scope_of("policies/keys.py", tmp_path)
