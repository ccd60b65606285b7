"""The broker that is fuzzed, and how much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.leveret_process import LeveretProcess

#: Cases in all by default.
_CASES = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fuzzer."""
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-cases", type=int, help=f"mutated sessions in all; default: $FUZZ_CASES, or {_CASES}")
    group.addoption("--fuzz-seed", help="what the mutations follow from; default: $FUZZ_SEED, or 0")


def _given(config: pytest.Config, option: str, variable: str, default: Any) -> Any:
    # A run of all tests meets this conftest too late for its options, but not for the environment.
    value = config.getoption(option, default=None)
    return os.environ.get(variable, default) if value is None else value


@pytest.fixture(scope="session")
def fuzz_cases(pytestconfig: pytest.Config) -> int:
    """Mutated sessions in all, over all kinds."""
    return int(_given(pytestconfig, "--fuzz-cases", "FUZZ_CASES", _CASES))


@pytest.fixture(scope="session")
def fuzz_seed(pytestconfig: pytest.Config) -> str:
    """What the mutations follow from."""
    return str(_given(pytestconfig, "--fuzz-seed", "FUZZ_SEED", "0"))


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker that nobody else talks to."""
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as process:
        yield process
