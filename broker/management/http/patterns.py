"""Compiles patterns of requests without blocking the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern

#: Patterns up to this many characters are compiled in one or two milliseconds.
_SHORT: Final = 200


async def compile_in_thread(source: object) -> None:
    """Compile a long pattern in a thread, which takes up to half a second. The next ``Pattern`` of it is cached.

    Args:
        source: The pattern. An invalid one is reported when it is used.
    """
    if isinstance(source, str) and len(source) > _SHORT:
        with suppress(InvalidPattern):
            await asyncio.to_thread(Pattern, source)
