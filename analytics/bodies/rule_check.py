"""Checks the types and schemas of rules for bodies: a program of its own, which the broker runs when rules are set.

It reads rules as JSON from stdin, a list of objects with the fields of BodyRule, and writes a list with what is wrong
with each: a line, or "". Of JSON it needs no library; schemas of Avro and Protobuf are checked where their libraries
are. Registries are not asked: one that is away must not prevent a start.
"""

from __future__ import annotations

import json
import resource
import sys
from base64 import b64decode
from typing import Final

from leveret.analytics.bodies.json_schema import is_json_schema, type_of_schema
from leveret.analytics.bodies.sql_types import SqlType, read_type
from leveret.analytics.errors import OptionError
from leveret.storage.readers.body_rules import BodyRule

#: Seconds of processor time for all rules: some short schemas have types that are larger than any memory.
_SECONDS: Final = 5


def main() -> int:
    """Check the rules of stdin; return the exit status, 0."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    json.dump([problem_of(BodyRule(**each)) for each in json.load(sys.stdin)], sys.stdout)
    return 0


def problem_of(rule: BodyRule) -> str:
    """Return what is wrong with the type or schema of a rule, and what would be right; "" if nothing is known."""
    try:
        if rule.schema:
            kind = _type_of(rule)
            if kind is not None:
                _check(kind, "")
    except (OptionError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, OptionError) else "the schema of bodies is too large"
        return f"{rule.name}: {' '.join(reason.split())}"
    return ""


def _type_of(rule: BodyRule) -> SqlType | None:
    """Return the type of a rule's values; None if a library is missing."""
    if rule.form == "json":
        return type_of_schema(rule.schema) if is_json_schema(rule.schema) else read_type(rule.schema)
    try:
        from leveret.analytics.bodies.value_types import type_ddl

        if rule.form == "avro":
            from leveret.analytics.bodies.avro_bodies import AvroBodies

            return read_type(type_ddl(AvroBodies(rule.schema).kind))
        from leveret.analytics.bodies.protobuf_bodies import ProtobufBodies

        return read_type(type_ddl(ProtobufBodies(b64decode(rule.schema), rule.message, rule.registry).kind))
    except ModuleNotFoundError:
        return None


def _check(kind: SqlType, where: str) -> None:
    """Refuse what can be written, but not be a column of SQL or Parquet."""
    shown = f"'{where}'" if where else "the type"
    if kind.name == "struct" and not kind.fields:
        raise OptionError(f"the schema of bodies has no fields in {shown}; name at least one, as in 'id bigint'")
    seen: dict[str, str] = {}
    for name in kind.fields:
        if name.lower() in seen:
            raise OptionError(
                f"the schema of bodies has '{seen[name.lower()]}' and '{name}' in {shown}, one field to SQL"
            )
        seen[name.lower()] = name
    for name, part in zip(kind.fields or ("",) * len(kind.parts), kind.parts, strict=True):
        _check(part, f"{where}.{name}".strip(".") if name else where)


if __name__ == "__main__":
    sys.exit(main())
