"""Conditions on JSON bodies, checked in short steps, and with a bound on the work for one body."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any, Final

from leveret.broker.core.json_values.long_text import NestedTooDeep, read_in_steps
from leveret.policies.json_path import NOTHING, parse_path, values_at
from leveret.policies.message_filter import equal

#: A longer body is not decoded. In bytes.
BODY_MAX: Final = 1 << 20
#: Values that are compared for one body at most: enough for any body and one path.
COMPARED_MAX: Final = 1 << 20
#: Up to this length in bytes a body is decoded at once.
_AT_ONCE: Final = 8192
_DECODER: Final = json.JSONDecoder()
#: Values that are compared in one step.
_STEP: Final = 256

# Why a body cannot be checked.
TOO_LONG: Final = f"the filter reads no body of more than {BODY_MAX} bytes"
TOO_MUCH: Final = f"the filter compares no more than {COMPARED_MAX} values of a body"
TOO_DEEP: Final = "its body is nested too deeply"


class UnreadableBody(Exception):
    """A body may have the wanted values, but cannot be checked; the text says why."""


class BodyConditions:
    """Conditions on JSON bodies.

    Args:
        conditions: Required JSON values by path; see json_path.py.
        is_any: Whether one of them is enough.
    """

    def __init__(self, conditions: Mapping[str, Any], is_any: bool) -> None:
        self._conditions = [(parse_path(path), wanted) for path, wanted in conditions.items()]
        self._is_any = is_any

    def steps(self, body: bytes) -> Generator[None, None, bool]:
        """Check a body in steps of a fraction of a millisecond; return whether it fulfils them. No JSON does not.

        Raises:
            UnreadableBody: It cannot be checked.
        """
        if len(body) > BODY_MAX:
            raise UnreadableBody(TOO_LONG)
        try:
            document = yield from _decode(body)
        except (NestedTooDeep, RecursionError):
            raise UnreadableBody(TOO_DEEP) from None
        except ValueError:
            return False
        compared = 0
        for path, wanted in self._conditions:
            holds = False
            for value in values_at(document, path):
                compared += 1
                if compared > COMPARED_MAX:
                    raise UnreadableBody(TOO_MUCH)
                if compared % _STEP == 0:
                    yield
                if value is not NOTHING and _equal(value, wanted):
                    holds = True
                    break
            if holds is self._is_any:
                return holds
        return not self._is_any


def _decode(body: bytes) -> Generator[None, None, Any]:
    if len(body) <= _AT_ONCE:
        return json.loads(body)
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    return (yield from read_in_steps(text, _DECODER))


def _equal(value: Any, wanted: Any) -> bool:
    try:
        return equal(value, wanted)
    except RecursionError:
        raise UnreadableBody(TOO_DEEP) from None
