"""Bodies for the readers of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from leveret.analytics.bodies.payloads import BodyReader, Payloads


def payloads_of(*bodies: bytes) -> Payloads:
    return Payloads(pa.array(bodies, pa.binary()), {}, {})


def read(reader: BodyReader, *bodies: bytes) -> list[tuple[Any, str | None]]:
    """The value of each body, and what is wrong with it."""
    payloads = payloads_of(*bodies)
    found = reader.read(payloads)
    found.validate(full=True)
    assert found.type == reader.kind
    values: Sequence[Any] = found.to_pylist()
    return [(value, payloads.reasons.get(row)) for row, value in enumerate(values)]
