"""What the matrix consists of: programs, the environments that have them, and the files that test them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PROGRAMS: Final = Path("tests/matrix/programs")
_INTEGRATION: Final = Path("tests/integration")


@dataclass(frozen=True)
class Program:
    """A program or library, as the table names it.

    Attributes:
        name: Its name.
        environment: The environment that has it, by the name of its files in `environments/`; None is the one that the
            project's own tests run in.
        files: The files of its tests, from the project's root on, the longest first.
    """

    name: str
    environment: str | None
    files: tuple[Path, ...]


def _own(folder: str, *names: str) -> tuple[Path, ...]:
    return tuple(_PROGRAMS / folder / f"test_{name}.py" for name in names)


def _integration(*names: str) -> tuple[Path, ...]:
    return tuple(_INTEGRATION / f"test_{name}.py" for name in names)


PROGRAMS: Final = (
    Program("Celery", "celery", _own("celery", "schedule", "crashes", "queues", "control", "canvas")),
    Program("kombu", None, _integration("kombu")),
    Program("Dramatiq", "clients", _own("dramatiq", "actors")),
    Program("taskiq-aio-pika", "clients", _own("taskiq", "tasks")),
    Program("FastStream", "clients", _own("faststream", "subscribers")),
    Program("nameko", "nameko", _own("nameko", "services")),
    Program("aio-pika patterns", "clients", _own("aio_pika", "patterns")),
    Program("aio-pika", None, _integration("aio_pika")),
    Program("pika adapters", "clients", _own("pika", "adapters")),
    Program("pika BlockingConnection", None, _integration("pika_blocking")),
    Program("pika SelectConnection", None, _integration("pika_select")),
    Program("pika AsyncioConnection", None, _integration("pika_asyncio")),
)
"""In the order of the table."""
