"""Types of the fixtures that are functions."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.wire import Connection

Connect = Callable[..., Connection]
Unique = Callable[..., str]
Poll = Callable[[Callable[[], bool]], None]
SetPolicy = Callable[..., None]
Refuse = Callable[..., None]
