"""Patterns in requests, compiled where they hold nobody up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern

#: Characters that are compiled in a millisecond or two.
_SHORT: Final = 200


async def compile_apart(source: object) -> None:
    """Compile a long pattern in a thread: it takes up to half a second. Who makes a ``Pattern`` of it next has it.

    Args:
        source: The pattern, if it is one; what is wrong with it is told when it is used.
    """
    if isinstance(source, str) and len(source) > _SHORT:
        with suppress(InvalidPattern):
            await asyncio.to_thread(Pattern, source)
