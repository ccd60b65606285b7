"""The format of a query's bodies: found where the query is planned, sent to the workers, which read with it."""

from __future__ import annotations

import importlib
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from leveret.analytics.bodies.json_schema import is_json_schema, type_of_schema
from leveret.analytics.bodies.schema_registry import Schema, registry_at
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.data_files import contents_of
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.option_values import BodyOptions
from leveret.storage.readers.body_rules import BodyRule

if TYPE_CHECKING:
    from leveret.analytics.bodies.payloads import BodyReader

#: Packages by format; the extra of `pip install` is called as the format.
_PACKAGES: Final = {"avro": "fastavro", "protobuf": "protobuf"}


@dataclass(frozen=True)
class BodyFormat:
    """Says how bodies are read; it can be sent to workers.

    Attributes:
        form: `json`, `avro` or `protobuf`.
        ddl: The type of the values in Spark's DDL.
        schema: Of Avro, the text of the schema; of Protobuf, the descriptors.
        message: Of Protobuf, the full name of the message.
        needs: Of Avro, the texts of schemas that the schema refers to.
        registry: Of Avro, the URL or directory of the registry whose five bytes bodies begin with; empty for none.
    """

    form: str
    ddl: str
    schema: str | bytes = ""
    message: str = ""
    needs: Sequence[str] = ()
    registry: str = ""

    @property
    def kind(self) -> pa.DataType:
        """The type of the values."""
        return parse_type(self.ddl)

    def reader(self) -> BodyReader:
        """Return what reads such bodies.

        Raises:
            AnalyticsError: This Python lacks the library for the format.
        """
        if self.form == "json":
            # Imported late, as what parses JSON takes long to load; most queries do not need it.
            from leveret.analytics.bodies.json_bodies import JsonBodies

            return JsonBodies(self.kind)
        return _reader(self.form, self.schema, self.message, self.needs, self.registry)


def json_format(schema: str) -> BodyFormat:
    """Return the format of JSON bodies of a type.

    Args:
        schema: The type in Spark's DDL, or a JSON schema.
    Raises:
        OptionError: It is not a type.
    """
    kind = type_of_schema(schema) if is_json_schema(schema) else parse_type(schema)
    return BodyFormat("json", type_ddl(kind))


def schema_format(options: BodyOptions) -> BodyFormat:
    """Return the format of Avro or Protobuf bodies, whose schema says the type of their values.

    Raises:
        OptionError: The schema cannot be read, or does not say it.
        AnalyticsError: This Python lacks the library for the format.
    """
    if options.rule is not None:
        return _format_of_rule(options.rule)
    schema: str | bytes = options.schema
    if options.form == "protobuf" or not options.schema.lstrip().startswith(("{", "[", '"')):
        schema = _contents(options.schema)
    if options.form == "avro" and isinstance(schema, bytes):
        try:
            schema = schema.decode()
        except UnicodeDecodeError:
            raise OptionError(f"bodySchema {options.schema} is not an Avro schema: it is not UTF-8") from None
    kind = _reader(options.form, schema, options.message).kind
    return BodyFormat(options.form, type_ddl(kind), schema, options.message)


def _format_of_rule(rule: BodyRule) -> BodyFormat:
    """Return the format of the Avro or Protobuf bodies of a rule."""
    if rule.form == "protobuf":
        descriptors = b64decode(rule.schema)
        kind = _reader("protobuf", descriptors, rule.message).kind
        return BodyFormat("protobuf", type_ddl(kind), descriptors, rule.message)
    schema, needs = Schema(rule.schema)
    if not schema:
        schema, needs = registry_at(rule.registry).latest(rule.subject)
    kind = _reader("avro", schema, "", needs).kind
    return BodyFormat("avro", type_ddl(kind), schema, "", needs, rule.registry)


def _contents(location: str) -> bytes:
    try:
        return contents_of(location)
    except OSError as error:
        raise OptionError(f"bodySchema {location} cannot be read: {error.strerror or error}") from error


def _reader(form: str, schema: str | bytes, message: str, needs: Sequence[str] = (), registry: str = "") -> BodyReader:
    package = _PACKAGES[form]
    try:
        module: Any = importlib.import_module(f"leveret.analytics.bodies.{form}_bodies")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastavro", "google"):
            raise
        raise AnalyticsError(
            f"bodies={form} needs the Python package {package}: pip install 'leveret[{form}]', also for Spark's workers"
        ) from error
    reader: BodyReader = (
        module.AvroBodies(schema, needs, registry) if form == "avro" else module.ProtobufBodies(schema, message)
    )
    return reader
