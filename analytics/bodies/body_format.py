"""The format of a query's bodies: found where the query is planned, sent to the workers, which read with it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.data_files import open_files
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.option_values import BodyOptions

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
    """

    form: str
    ddl: str
    schema: str | bytes = ""
    message: str = ""

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
        return _reader(self.form, self.schema, self.message)


def json_format(ddl: str) -> BodyFormat:
    """Return the format of JSON bodies of a type.

    Raises:
        OptionError: It is not a type.
    """
    return BodyFormat("json", type_ddl(parse_type(ddl)))


def schema_format(options: BodyOptions) -> BodyFormat:
    """Return the format of Avro or Protobuf bodies, whose schema says the type of their values.

    Raises:
        OptionError: The schema cannot be read, or does not say it.
        AnalyticsError: This Python lacks the library for the format.
    """
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


def _contents(location: str) -> bytes:
    files, path = open_files(location)
    try:
        if files is not None:
            found = files.read_all(path)
            if found is None:
                raise FileNotFoundError("no such file")
            return found
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OptionError(f"bodySchema {location} cannot be read: {error.strerror or error}") from error


def _reader(form: str, schema: str | bytes, message: str) -> BodyReader:
    package = _PACKAGES[form]
    try:
        module: Any = importlib.import_module(f"leveret.analytics.bodies.{form}_bodies")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastavro", "google"):
            raise
        raise AnalyticsError(
            f"bodies={form} needs the Python package {package}: pip install 'leveret[{form}]', also for Spark's workers"
        ) from error
    reader: BodyReader = module.AvroBodies(schema) if form == "avro" else module.ProtobufBodies(schema, message)
    return reader
