"""Options that say how bodies are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from leveret.analytics.errors import OptionError

#: The options, in lower case.
BODY_OPTIONS: Final = ("bodies", "bodyschema", "bodymessage", "bodysample")
#: Tables that have bodies.
BODY_TABLES: Final = ("messages", "delayed")
#: Columns that such a table has besides, with their Spark types; the type of `value` depends on the bodies.
VALUE: Final = "value"
VALUE_ERROR: Final = "value_error"
VALUE_COLUMNS: Final = (VALUE, VALUE_ERROR)
#: The properties of messages that say how their bodies are to be read.
PROPERTIES_OF_BODIES: Final = frozenset({"content_encoding", "headers"})
_FORMATS: Final = ("json", "avro", "protobuf")
_SAMPLE: Final = 1000
_SAMPLE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """How bodies are read.

    Attributes:
        form: `json`, `avro` or `protobuf`.
        schema: Of JSON, a type in Spark's DDL, empty to infer it; of Avro, a schema in JSON, or the path or URI of a
            file with one; of Protobuf, the path or URI of a file with a descriptor set.
        message: Of Protobuf, the full name of the message.
        sample: Of JSON, from how many messages at most the type is inferred.
    """

    form: str
    schema: str = ""
    message: str = ""
    sample: int = _SAMPLE


def parse_body_options(found: Mapping[str, str]) -> BodyOptions | None:
    """Parse the options; return None if bodies are not read.

    Args:
        found: All options of the data source, their names in lower case.
    Raises:
        OptionError: An option is invalid or missing.
    """
    form = found.get("bodies", "").lower()
    if not form:
        for name in BODY_OPTIONS:
            if found.get(name):
                raise OptionError(f"option '{name}' needs the option bodies: {' or '.join(_FORMATS)}")
        return None
    if form not in _FORMATS:
        raise OptionError(f"option 'bodies' must be one of {', '.join(_FORMATS)}, not '{form}'")
    schema, message = found.get("bodyschema", ""), found.get("bodymessage", "")
    if form == "avro" and not schema:
        raise OptionError("bodies=avro needs the option bodySchema: the path of the schema, or its text")
    if form == "protobuf" and not (schema and message):
        raise OptionError(
            "bodies=protobuf needs the options bodySchema, the path of what protoc --include_imports "
            "--descriptor_set_out has written, and bodyMessage, the full name of the message"
        )
    if message and form != "protobuf":
        raise OptionError("option 'bodyMessage' is for bodies=protobuf")
    return BodyOptions(form, schema, message, _sample(found.get("bodysample", str(_SAMPLE))))


def types_with_values(types: Mapping[str, str], bodies: BodyOptions | None) -> Mapping[str, str]:
    """Return the columns of a table with `value`, as text for now, and `value_error`, if bodies are read.

    Args:
        types: Spark types of the columns, by name.
        bodies: How bodies are read; None if they are not.
    """
    return types if bodies is None else {**types, **dict.fromkeys(VALUE_COLUMNS, "string")}


def reads_values(columns: Iterable[str]) -> bool:
    """Return whether bodies have to be read for some columns."""
    return not set(columns).isdisjoint(VALUE_COLUMNS)


def _sample(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _SAMPLE_MAX:
        raise OptionError(f"option 'bodySample' must be an integer from 1 to {_SAMPLE_MAX}, not '{text[:20]}'")
    return int(text)
