"""Reads the project's documentation, for tests that run its examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: Every page, by its path from the project's root.
PAGES: Final = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
    ]
}

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, page: str | None = None) -> list[str]:
    """Return the code blocks in a language."""
    pages = PAGES.values() if page is None else [PAGES[page]]
    return [content for text in pages for found, content in _FENCED.findall(text) if found == language]


def fenced(page: str) -> list[tuple[str, str, str]]:
    """Return a page's code blocks, each with its language and the text up to the next one."""
    _, *parts = _FENCED.split(PAGES[page])
    return list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))


def block(language: str, text: str) -> str:
    """Return the only code block in a language that contains a text."""
    (found,) = [each for each in blocks(language) if text in each]
    return found


def prose(page: str) -> str:
    """Return a page without its code blocks."""
    return _FENCED.sub("", PAGES[page])


def inline_code() -> list[str]:
    """Return all inline code of all pages."""
    return [code for page in PAGES for code in re.findall(r"`([^`\n]+)`", prose(page))]
