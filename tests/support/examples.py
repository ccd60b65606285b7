"""How much Hypothesis tries: each time the same examples, however slow the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

#: Examples of a test that says no number, in percent of Hypothesis's own default: all of them, and in the first tier.
_ALL, _FIRST = 100, 25


def load_profile(*, is_first_tier: bool) -> None:
    """Set how Hypothesis runs. The first tier tries a quarter of the examples, the second the rest too."""
    settings.register_profile(
        "leveret",
        max_examples=_FIRST if is_first_tier else _ALL,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("leveret")


def examples(number: int) -> int:
    """Return how many examples this run tries of a test that has this many."""
    return number * settings().max_examples // _ALL
