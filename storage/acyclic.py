"""Marks classes whose instances are in no reference cycle: compiled, they have no header of the garbage collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The compiler knows the decorator by this name. It is not needed when something runs.
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated
