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
from leveret.analytics.bodies.sql_types import SqlType, read_type
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
        registry: The URL or directory of the registry whose five bytes bodies begin with; empty for none.
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

            return JsonBodies(self.kind, begins_with_number=bool(self.registry))
        return _reader(self.form, self.schema, self.message, self.needs, self.registry)


def json_format(schema: str, registry: str = "") -> BodyFormat:
    """Return the format of JSON bodies of a type.

    Args:
        schema: The type in Spark's DDL, or a JSON schema.
        registry: See BodyFormat.
    Raises:
        OptionError: It is not a type.
    """
    return BodyFormat("json", _type_of_json(Schema(schema)).ddl, registry=registry)


def format_of_bodies(options: BodyOptions) -> BodyFormat:
    """Return the format of bodies whose schema is known.

    Raises:
        OptionError: The schema cannot be read, or is not one.
        AnalyticsError: This Python lacks the library for the format, or a registry cannot be asked.
    """
    if options.rule is not None:
        return _format_of_rule(options.rule)
    if options.form == "json":
        return json_format(options.schema)
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
    """Return the format of the bodies of a rule."""
    if rule.schema:
        schema = Schema(b64decode(rule.schema) if rule.form == "protobuf" else rule.schema)
    else:
        schema = registry_at(rule.registry).latest(rule.subject, rule.form)
    if rule.form == "json":
        return BodyFormat("json", _type_of_json(schema).ddl, registry=rule.registry)
    needs = [str(text) for _, text in schema.needs]
    reader = _reader(rule.form, schema.content, rule.message, needs, rule.registry)
    return BodyFormat(rule.form, type_ddl(reader.kind), schema.content, rule.message, needs, rule.registry)


def _type_of_json(schema: Schema) -> SqlType:
    text = str(schema.content)
    return type_of_schema(text, schema.needs) if is_json_schema(text) else read_type(text)


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
        module.AvroBodies(schema, needs, registry)
        if form == "avro"
        else module.ProtobufBodies(schema, message, registry)
    )
    return reader
