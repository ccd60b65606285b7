from __future__ import annotations

from pathlib import Path

from leveret.broker.config.options import OPTIONS
from leveret.broker.config.rendering import reference_page, reference_table


def test_every_option_has_its_row_in_order() -> None:
    head, line, *rows = reference_table().splitlines()
    assert head.startswith("| Option | Default |")
    assert set(line) == set("| -")
    assert [row.split("`")[1] for row in rows] == list(OPTIONS)


def test_every_row_has_all_columns() -> None:
    for row, option in zip(reference_table().splitlines()[2:], OPTIONS.values(), strict=True):
        assert row.count(" | ") == 6
        assert f"`{option.environment}`" in row
        assert option.help in row
        assert option.flag in row


def test_defaults_carry_their_units() -> None:
    text = reference_table()
    assert "| `frame_max` | `131072` bytes |" in text
    assert "| `heartbeat` | `60` s |" in text
    assert "| `connection_max` | none |" in text
    assert '| `loopback_users` | `["guest"]` |' in text


def test_the_page_in_the_project_is_the_current_one() -> None:
    """`leveret config-reference > docs/configuration.md` brings it up to date."""
    assert (Path(__file__).parents[4] / "docs" / "configuration.md").read_text("utf-8") == reference_page()
