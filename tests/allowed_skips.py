"""Which tests may be skipped, and where. With STRICT_SKIPS=1, as CI sets it, any other skip fails the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class Allowed(NamedTuple):
    """Tests that may be skipped.

    Attributes:
        source: The file that skips, from the project's root on.
        reason: How the reason begins.
        why: What these tests need that not every machine has.
    """

    source: str
    reason: str
    why: str


class Skip(NamedTuple):
    """A test that was skipped.

    Attributes:
        source: The file that skipped it, from the project's root on.
        reason: What it says.
    """

    source: str
    reason: str


ALLOWED: Final = (
    Allowed("tests/packaging/test_service.py", "no systemd on this machine", "containers run without systemd"),
    Allowed("tests/packaging/test_compilation.py", "leveret is not compiled here", "a C compiler is optional"),
    Allowed("tests/fuzz/test_compiled_and_pure.py", "leveret is not compiled here", "a C compiler is optional"),
    Allowed("tests/bench/test_load.py", "leveret is not compiled here", "a C compiler is optional"),
    Allowed("tests/unit/broker/session/test_long_work.py", "functions are replaced", "CI runs them in pure Python"),
    Allowed(
        "tests/unit/broker/session/test_varied_publishes.py",
        "functions are replaced",
        "CI runs them in pure Python",
    ),
    Allowed("tests/unit/broker/core/queues/test_browsing.py", "functions are replaced", "CI runs them in pure Python"),
    Allowed("tests/bench/test_commands.py", "py-spy needs root", "others may not look into processes everywhere"),
    Allowed("tests/packaging/test_compose.py", "docker compose is not installed", "Docker is optional"),
    Allowed("tests/packaging/test_cluster_files.py", "docker compose is not installed", "Docker is optional"),
    Allowed("tests/support/small_disk.py", "CANNOT MOUNT A SMALL DISK HERE", "to mount takes root and its rights"),
    Allowed("tests/integration/management/test_rabbitmqadmin.py", "", "the tool comes from Debian's archive"),
)


def unexpected(skips: Iterable[Skip]) -> list[Skip]:
    """Those that are not allowed."""
    return [
        skip
        for skip in skips
        if not any(skip.source.endswith(each.source) and skip.reason.startswith(each.reason) for each in ALLOWED)
    ]
