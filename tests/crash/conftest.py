"""How long the tests that kill the broker go on, and how much of a directory is damaged."""

from __future__ import annotations

import os

import pytest

for module in ("scenario", "simulated_loads", "process_loads", "reader_loads", "rows"):
    pytest.register_assert_rewrite(f"tests.crash.{module}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kill loop and of the simulated losses of power."""
    group = parser.getgroup("crash")
    group.addoption("--kill-rounds", type=int, help="times that the broker is killed; default: $KILL_ROUNDS, or 12")
    group.addoption("--power-cuts", type=int, help="simulated losses of power; default: $POWER_CUTS, or 60")
    group.addoption("--damage-step", type=int, help="try every so manieth damage; default: $DAMAGE_STEP, or 197")
    group.addoption("--kill-seed", type=int, help="seed of the load; default: $KILL_SEED, or 1")


def _number(config: pytest.Config, option: str, variable: str, default: int) -> int:
    # A run of all tests meets this conftest too late for its options, but not for the environment.
    value: int | None = config.getoption(option, default=None)
    return int(os.environ.get(variable, default)) if value is None else value


@pytest.fixture
def kill_rounds(pytestconfig: pytest.Config) -> int:
    """Times that the broker is killed."""
    return _number(pytestconfig, "--kill-rounds", "KILL_ROUNDS", 12)


@pytest.fixture
def power_cuts(pytestconfig: pytest.Config) -> int:
    """Times that power goes in a simulation."""
    return _number(pytestconfig, "--power-cuts", "POWER_CUTS", 60)


@pytest.fixture
def kill_seed(pytestconfig: pytest.Config) -> int:
    """Seed of what the clients do; when the broker dies in that is the machine's affair."""
    return _number(pytestconfig, "--kill-seed", "KILL_SEED", 1)


@pytest.fixture
def damage_step(pytestconfig: pytest.Config) -> int:
    """Every so manieth damage of a file is tried."""
    return _number(pytestconfig, "--damage-step", "DAMAGE_STEP", 197)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the kill loop and the simulations the time that they need."""
    rounds = _number(config, "--kill-rounds", "KILL_ROUNDS", 12)
    cuts = _number(config, "--power-cuts", "POWER_CUTS", 60)
    step = _number(config, "--damage-step", "DAMAGE_STEP", 197)
    for item in items:
        if "damage_step" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(300 + 60_000 // step))
        if "kill_rounds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900 + 120 * rounds))
        if "power_cuts" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(300 + 15 * cuts))
