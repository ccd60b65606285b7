"""Docker, the image under test, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker import image as images
from tests.docker.daemon import CannotStartError, Docker, docker

_FOLDER = Path(__file__).parent
#: Building takes longer than other tests may.
_SECONDS = 1200
_MEASURED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--analytics", action="store_true", help="build and test the image of the Spark jobs as well")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MEASURED] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _FOLDER in item.path.parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    measured = config.stash[_MEASURED]
    if measured:
        terminalreporter.section("the image")
        for name, value in measured.items():
            terminalreporter.write_line(f"{name:<40}{value:>20}")


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> dict[str, str]:
    """What is to be printed at the end: value by name."""
    return request.config.stash[_MEASURED]


@pytest.fixture(scope="session")
def client() -> Iterator[Docker]:
    """Docker; its absence is a failure, as it was asked for."""
    try:
        with docker() as started:
            yield started
    except CannotStartError as error:
        pytest.exit(f"NO DOCKER, NOTHING WAS TESTED: {error}", returncode=1)


@pytest.fixture(scope="session")
def image(client: Docker, measured: dict[str, str]) -> str:
    """The broker's image, freshly built."""
    try:
        name = images.build(client)
    except CannotStartError as error:
        pytest.exit(f"NO BASE IMAGE, NOTHING WAS TESTED: {error}", returncode=1)
    measured["image size"] = f"{images.size(client, name) / 1e6:.0f} MB"
    return name
