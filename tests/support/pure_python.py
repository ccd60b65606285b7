"""Mark of tests that replace functions of the product."""

from __future__ import annotations

import pytest

from leveret import compilation

#: Compiled modules call each other directly, so that a replaced function has no effect. CI runs these tests in pure
#: Python.
skip_where_compiled = pytest.mark.skipif(
    compilation.form() == "compiled", reason="functions are replaced in pure Python only"
)
