"""Programs and commands of all pages work as printed: each page alone, and each after every other.

For any two pages, one comes after the other in the order of the front page, and the other after the one in the reverse
order. With `-s` the tests print what they did.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.program import Program, running
from tests.support.documentation import PAGES, blocks
from tests.support.documentation_walk import WALKED, Walk, steps_of
from tests.support.wire import Connection


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of the pages name the data directory of a broker that was started in the same place."""
    monkeypatch.chdir(tmp_path)


@contextmanager
def broker(directory: Path, *arguments: str) -> Iterator[Program]:
    with running(directory, "--data-dir", str(directory / "leveret-data"), *arguments) as program:
        yield program


def read(program: Program, page: str) -> None:
    print(Walk(**program.addresses).read(page))  # noqa: T201


@pytest.mark.parametrize("page", WALKED)
def test_a_page_says_what_its_programs_need(page: str) -> None:
    imported = set(re.findall(r"^(?:import|from) (\w+)", "".join(blocks("python", page)), re.MULTILINE))
    installed = " ".join(re.findall(r"pip install ([^`\n]+)", PAGES[page]))
    needed = imported - sys.stdlib_module_names - {"leveret", *(("pyarrow", "pyspark") if "[a" in installed else ())}
    assert {name for name in needed if name not in installed} == set()
    # What they print is compared.
    said = re.findall(r"python \w+\.py` prints `", PAGES[page])
    assert len([step for step in steps_of(page) if step.printed is not None]) == len(said)


@pytest.mark.parametrize("page", WALKED)
def test_a_page_alone(tmp_path: Path, page: str) -> None:
    with broker(tmp_path) as program:
        read(program, page)


@pytest.mark.parametrize("pages", [WALKED, WALKED[::-1]], ids=["forward", "backward"])
def test_all_pages(tmp_path: Path, pages: list[str]) -> None:
    with broker(tmp_path) as program:
        for page in pages:
            read(program, page)
        assert "reach no queue" not in program.log()
    # After all of them a broker starts with the configurations of the pages, too.
    for number, content in enumerate(blocks("yaml")):
        if "register:" in content:
            # It would wait for the register.
            continue
        file = tmp_path / f"{number}.yaml"
        file.write_text(content.replace("/var/log/leveret", str(tmp_path)))
        with broker(tmp_path, "--config", str(file)) as program, Connection(program.url) as connection:
            connection.channel()
