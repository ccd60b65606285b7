from __future__ import annotations

import textwrap

import pytest

from tests.tidy.measure import function_lines, is_junk_drawer, only_reexports

SAMPLE = textwrap.dedent(
    '''\
    """Module."""

    if True:
        def short(): ...

    @decorator
    def outer(
        argument,
    ):
        """One line.

        And more.
        """
        def inner():
            return 1
        return inner

    class Box:
        """A box."""

        limit = 1

        @property
        def size(self):
            return 1

        @size.setter
        def size(self, value):
            check(value)
            self.value = value

        async def open(self):
            """Opens."""

        class Lid:
            def lift(self): ...
    '''
)


def test_lines_of_functions_leave_docstrings_and_decorators_out() -> None:
    assert function_lines(SAMPLE) == {
        "short": 1,
        "outer": 6,
        "outer.inner": 2,
        "Box.size": 3,
        "Box.open": 1,
        "Box.Lid.lift": 1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"""Docs."""',
        "from __future__ import annotations\nfrom a.b import c as c\nimport d\n__all__ = ['c']\n",
        "if TYPE_CHECKING:\n    from a import b\n    c: str\ndef __getattr__(name): return load(name)\n",
        "if __name__ != 'a.b':\n    raise ImportError('import a.b instead')",
    ],
)
def test_only_reexports(text: str) -> None:
    assert only_reexports(text)


@pytest.mark.parametrize(
    "text", ["x = 1", "def f(): ...", "import a\na.start()", "if a:\n    import b", "if __name__ != a:\n    b()"]
)
def test_more_than_reexports(text: str) -> None:
    assert not only_reexports(text)


@pytest.mark.parametrize("stem", ["utils", "misc", "test_helpers", "queue_utils", "common", "Util"])
def test_junk_drawers(stem: str) -> None:
    assert is_junk_drawer(stem)


@pytest.mark.parametrize("stem", ["queue", "test_units", "miscount", "commons_clause"])
def test_names_that_say_something(stem: str) -> None:
    assert not is_junk_drawer(stem)
