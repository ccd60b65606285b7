"""Types of JSON bodies that a JSON schema describes.

A schema says which fields there are and of which types; what else it demands (ranges, lengths, patterns, which fields
are required) is not checked. What has no type of its own in Spark, as a choice of an object and a text, is text.

Source: https://json-schema.org/draft/2020-12/json-schema-validation, and earlier drafts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.errors import OptionError

_PLAIN: Final[dict[str, Any]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.string(),
}
_FORMATS: Final[dict[str, Any]] = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
#: Types that a value of an enumeration has.
_CLASSES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_DEPTH_MAX: Final = 64


def is_json_schema(text: str) -> bool:
    """Return whether the schema of JSON bodies is a JSON schema, and not a type in Spark's DDL."""
    return text.lstrip().startswith("{")


def type_of_schema(text: str) -> pa.DataType:
    """Return the type of the values that a JSON schema describes.

    Raises:
        OptionError: It is not a JSON schema, or its type cannot be known: a reference leads nowhere, or into itself.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"bodySchema is not a JSON schema: {error}") from None
    if not isinstance(schema, Mapping):
        raise OptionError("bodySchema is not a JSON schema: it is no object")
    return _Schemas(schema).type_of(schema, "the schema", ())


class _Schemas:
    """A schema with those that it refers to.

    Args:
        root: The whole schema.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def type_of(self, schema: Any, where: str, within: tuple[str, ...]) -> pa.DataType:
        """Return the type of a part of the schema.

        Args:
            where: What the part is, for error texts.
            within: References by which it was reached.
        """
        if schema is True:
            return pa.string()
        if not isinstance(schema, Mapping):
            raise OptionError(f"bodySchema is not a JSON schema: {where} is no object")
        if len(within) > _DEPTH_MAX:
            raise OptionError(f"bodySchema is nested too deeply at {where}")
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in within:
                raise OptionError(f"bodySchema refers to itself at {where} ({reference}), for which Spark has no type")
            return self.type_of(self._found(reference, where), where, (*within, str(reference)))
        for key in ("allOf", "anyOf", "oneOf"):
            if key in schema:
                return self._combined(schema, key, where, within)
        return self._plain(schema, where, within)

    def _plain(self, schema: Mapping[str, Any], where: str, within: tuple[str, ...]) -> pa.DataType:
        names = _type_names(schema, where)
        if len(names) > 1:
            return pa.float64() if set(names) == {"integer", "number"} else pa.string()
        name = names[0] if names else ""
        if name == "object":
            return self._object(schema, where, within)
        if name == "array":
            items = schema.get("items", True)
            # Earlier drafts have a list here for arrays whose places have types of their own.
            if isinstance(items, list) or "prefixItems" in schema:
                return pa.list_(pa.string())
            return pa.list_(self.type_of(items, f"the items of {where}", (*within, "")))
        if name == "string":
            return _FORMATS.get(str(schema.get("format")), pa.string())
        return _PLAIN.get(name, pa.string())

    def _object(self, schema: Mapping[str, Any], where: str, within: tuple[str, ...]) -> pa.DataType:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise OptionError(f"bodySchema is not a JSON schema: 'properties' of {where} is no object")
        if properties:
            inner = (*within, "")
            return pa.struct(
                [(name, self.type_of(each, f"'{name}' of {where}", inner)) for name, each in properties.items()]
            )
        others = schema.get("additionalProperties", True)
        if isinstance(others, Mapping):
            return pa.map_(pa.string(), self.type_of(others, f"the properties of {where}", (*within, "")))
        # Parquet has no struct without fields.
        return pa.string()

    def _combined(self, schema: Mapping[str, Any], key: str, where: str, within: tuple[str, ...]) -> pa.DataType:
        choices = schema[key]
        if not isinstance(choices, list) or not choices:
            raise OptionError(f"bodySchema is not a JSON schema: '{key}' of {where} is no list")
        found = [
            self.type_of(each, where, (*within, ""))
            for each in choices
            if not (isinstance(each, Mapping) and each.get("type") == "null")
        ]
        if key == "allOf":
            own = {name: each for name, each in schema.items() if name != key}
            found += [self._plain(own, where, within)] if own.keys() & {"type", "properties"} else []
            if found and all(map(pa.types.is_struct, found)):
                fields = {field.name: field.type for kind in found for field in kind}
                return pa.struct(list(fields.items()))
        return found[0] if found and all(each == found[0] for each in found) else pa.string()

    def _found(self, reference: Any, where: str) -> Any:
        """Return what a reference leads to, in this schema: no other one is fetched."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise OptionError(f"bodySchema refers to another schema at {where} ({reference}); write that into this one")
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if name:
                found = found.get(name) if isinstance(found, Mapping) else None
        if found is None:
            raise OptionError(f"bodySchema has no {reference}, to which {where} refers")
        return found


def _type_names(schema: Mapping[str, Any], where: str) -> list[str]:
    """Return the types that a schema allows beside null; none for any."""
    named = schema.get("type")
    if named is None:
        values = (
            schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
        )
        named = list(dict.fromkeys(_CLASSES.get(type(each), "") for each in values))
        if not named and "properties" in schema:
            named = ["object"]
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, Sequence) or not all(each in (*_PLAIN, "object", "array", "") for each in names):
        raise OptionError(f"bodySchema is not a JSON schema: {where} has the type {json.dumps(named)[:100]}")
    return [each for each in names if each != "null"] or (["null"] if names else [])
