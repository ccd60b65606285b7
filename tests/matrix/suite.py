"""What the matrix consists of: programs, the environments that have them, and the files that test them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PROGRAMS: Final = Path("tests/matrix/programs")


@dataclass(frozen=True)
class Program:
    """A program or library, as the table names it."""

    name: str
    environment: str
    file: Path


PROGRAMS: Final = (
    Program("Celery", "celery", _PROGRAMS / "celery/test_tasks.py"),
    Program("Dramatiq", "clients", _PROGRAMS / "dramatiq/test_actors.py"),
    Program("taskiq-aio-pika", "clients", _PROGRAMS / "taskiq/test_tasks.py"),
    Program("FastStream", "clients", _PROGRAMS / "faststream/test_subscribers.py"),
    Program("nameko", "nameko", _PROGRAMS / "nameko/test_services.py"),
    Program("aio-pika patterns", "clients", _PROGRAMS / "aio_pika/test_patterns.py"),
    Program("pika adapters", "clients", _PROGRAMS / "pika/test_adapters.py"),
)
"""In the order of the table; those that take longest come first."""
