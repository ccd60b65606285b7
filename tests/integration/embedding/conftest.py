"""The broker of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret import LeveretThread, clean_broker


@pytest.fixture
def broker() -> Iterator[LeveretThread]:
    """A broker as good as new."""
    with clean_broker() as clean:
        yield clean
