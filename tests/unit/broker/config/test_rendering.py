from __future__ import annotations

from pathlib import Path

from leveret.broker.config.rendering import reference_page


def test_the_page_in_the_project_is_the_current_one() -> None:
    """`leveret config-reference > docs/configuration.md` brings it up to date."""
    assert (Path(__file__).parents[4] / "docs" / "configuration.md").read_text("utf-8") == reference_page()
