"""The compiled codec and stores do what the sources do, on valid and on spoilt input, and keep no memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret import compilation

_ROOT = Path(__file__).parents[2]
_SECONDS = 3600
#: A process may grow by this much in the second half of its cases: caches and the allocator's slack.
_GROWTH_KIB = 4096


def reading(form: str, seed: str, cases: int) -> subprocess.Popen[str]:
    """Start to read cases in a process with compiled modules ("1") or without ("0")."""
    command = [sys.executable, "-m", "tests.fuzz.reading", seed, str(cases)]
    return subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, "LEVERET_COMPILE": form}, stdout=subprocess.PIPE, text=True
    )


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")
    assert process.wait(_SECONDS) == 0


@pytest.mark.skipif(compilation.form() != "compiled", reason="leveret is not compiled here")
def test_compiled_and_pure_agree(fuzz_cases: int, fuzz_seed: str) -> None:
    cases = fuzz_cases * 30
    with reading("1", fuzz_seed, cases) as compiled, reading("0", fuzz_seed, cases) as pure:
        pairs = zip(lines_of(compiled), lines_of(pure), strict=True)
        for number, (of_compiled, of_pure) in enumerate(pairs):
            if number < cases:
                assert of_compiled == of_pure, f"case {number} of FUZZ_SEED={fuzz_seed}"
    assert number == cases
    assert (of_compiled.rpartition(" ")[0], of_pure.rpartition(" ")[0]) == ("compiled", "pure Python")
    assert int(of_compiled.rpartition(" ")[2]) < _GROWTH_KIB
