"""The decorator by which classes tell the compiler something about themselves; it has no effect in pure Python.

`acyclic`: instances are in no reference cycle, so they have no header of the garbage collector.
`allow_interpreted_subclasses`: modules that are not compiled may inherit from it.
`native_class=False`: it is an ordinary class of Python, as one must be that inherits from OSError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The compiler knows the decorator by this name. It is not needed when something runs.
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated
