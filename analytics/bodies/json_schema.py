"""Types of JSON bodies that a JSON schema describes.

A schema says which fields there are and of which types; what else it demands (ranges, lengths, patterns, which fields
are required) is not checked. What has no type of its own in Spark, as a choice of an object and a text, is text.

Source: https://json-schema.org/draft/2020-12/json-schema-validation, and earlier drafts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final
from urllib.parse import unquote, urljoin

from leveret.analytics.bodies.sql_types import SqlType, struct
from leveret.analytics.errors import OptionError

_TEXT: Final = SqlType("string")
_PLAIN: Final = {
    "string": _TEXT,
    "integer": SqlType("bigint"),
    "number": SqlType("double"),
    "boolean": SqlType("boolean"),
    "null": _TEXT,
}
_FORMATS: Final = {"date-time": SqlType("timestamp"), "date": SqlType("date")}
#: Types that a value of an enumeration has.
_CLASSES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_DEPTH_MAX: Final = 64
#: References to references can make a short text a very large type.
_PARTS_MAX: Final = 10_000


def is_json_schema(text: str) -> bool:
    """Return whether the schema of JSON bodies is a JSON schema, and not a type in Spark's DDL."""
    return text.lstrip().startswith("{")


def type_of_schema(text: str, others: Sequence[tuple[str, str]] = ()) -> SqlType:
    """Return the type of the values that a JSON schema describes.

    Args:
        others: Schemas that it may refer to, each by the name that `$ref` has for it.
    Raises:
        OptionError: It is not a JSON schema, or its type cannot be known: a reference leads nowhere, or into itself.
    """
    schemas = _Schemas(_parsed(text, "the schema of bodies"), dict(others))
    return schemas.type_of(schemas.root, "the schema", ())


def _parsed(text: str, what: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{what} is not a JSON schema: {error}") from None
    if not isinstance(schema, Mapping):
        raise OptionError(f"{what} is not a JSON schema: it is no object")
    return schema


class _Schemas:
    """A schema with those that it refers to.

    Args:
        root: The whole schema.
        others: The texts of others by name.
        name: Its own name among them.
    """

    def __init__(self, root: Mapping[str, Any], others: Mapping[str, str], name: str = "") -> None:
        self.root = root
        self._others = others
        self._name = name
        self._known: dict[str, _Schemas] = {name: self}
        #: How many parts all of them have had.
        self._parts = count(1)

    def type_of(self, schema: Any, where: str, within: tuple[str, ...]) -> SqlType:
        """Return the type of a part of the schema.

        Args:
            where: What the part is, for error texts.
            within: References by which it was reached.
        """
        if schema is True:
            return _TEXT
        if not isinstance(schema, Mapping):
            raise OptionError(f"the schema of bodies is not a JSON schema: {where} is no object")
        if len(within) > _DEPTH_MAX:
            raise OptionError(f"the schema of bodies is nested too deeply at {where}")
        if next(self._parts) > _PARTS_MAX:
            raise OptionError(f"the schema of bodies has more than {_PARTS_MAX} parts with all that it refers to")
        if "$ref" in schema:
            reference = schema["$ref"]
            there, found = self._found(reference, where)
            place = f"{there._name}#{str(reference).partition('#')[2]}"
            if place in within:
                raise OptionError(
                    f"the schema of bodies refers to itself at {where} ({reference}), for which Spark has no type"
                )
            return there.type_of(found, where, (*within, place))
        for key in ("allOf", "anyOf", "oneOf"):
            if key in schema:
                return self._combined(schema, key, where, within)
        return self._plain(schema, where, within)

    def _plain(self, schema: Mapping[str, Any], where: str, within: tuple[str, ...]) -> SqlType:
        names = _type_names(schema, where)
        if len(names) > 1:
            return _PLAIN["number"] if set(names) == {"integer", "number"} else _TEXT
        name = names[0] if names else ""
        if name == "object":
            return self._object(schema, where, within)
        if name == "array":
            items = schema.get("items", True)
            # Earlier drafts have a list here for arrays whose places have types of their own.
            if isinstance(items, list) or "prefixItems" in schema:
                return SqlType("array", (_TEXT,))
            return SqlType("array", (self.type_of(items, f"the items of {where}", (*within, "")),))
        if name == "string":
            return _FORMATS.get(str(schema.get("format")), _TEXT)
        return _PLAIN.get(name, _TEXT)

    def _object(self, schema: Mapping[str, Any], where: str, within: tuple[str, ...]) -> SqlType:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise OptionError(f"the schema of bodies is not a JSON schema: 'properties' of {where} is no object")
        if properties:
            inner = (*within, "")
            return struct(
                (name, self.type_of(each, f"'{name}' of {where}", inner)) for name, each in properties.items()
            )
        others = schema.get("additionalProperties", True)
        if isinstance(others, Mapping):
            return SqlType("map", (_TEXT, self.type_of(others, f"the properties of {where}", (*within, ""))))
        # Parquet has no struct without fields.
        return _TEXT

    def _combined(self, schema: Mapping[str, Any], key: str, where: str, within: tuple[str, ...]) -> SqlType:
        choices = schema[key]
        if not isinstance(choices, list) or not choices:
            raise OptionError(f"the schema of bodies is not a JSON schema: '{key}' of {where} is no list")
        found = [
            self.type_of(each, where, (*within, ""))
            for each in choices
            if not (isinstance(each, Mapping) and each.get("type") == "null")
        ]
        if key == "allOf":
            own = {name: each for name, each in schema.items() if name != key}
            found += [self._plain(own, where, within)] if own.keys() & {"type", "properties"} else []
            if found and all(each.name == "struct" for each in found):
                fields = [pair for each in found for pair in zip(each.fields, each.parts, strict=True)]
                return struct(dict(fields).items())
        return found[0] if found and all(each == found[0] for each in found) else _TEXT

    def _found(self, reference: Any, where: str) -> tuple[_Schemas, Any]:
        """Return what a reference leads to, in this schema or in one given with it: none is fetched."""
        document, _, path = reference.partition("#") if isinstance(reference, str) else (None, "", "")
        there = self if document == "" else self._other(document)
        if there is None:
            raise OptionError(
                f"the schema of bodies refers to another schema at {where} ({reference}); write that into this one"
            )
        found: Any = there.root
        for part in path.strip("/").split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if name:
                found = found.get(name) if isinstance(found, Mapping) else None
        if found is None:
            raise OptionError(f"the schema of bodies has no {reference}, to which {where} refers")
        return there, found

    def _other(self, document: str | None) -> _Schemas | None:
        for name in (document, urljoin(str(self.root.get("$id", "")), document)) if document else ():
            if name in self._others and name not in self._known:
                there = _Schemas(_parsed(self._others[name], name), self._others, name)
                there._known, there._parts = self._known, self._parts
                self._known[name] = there
            if name in self._known:
                return self._known[name]
        return None


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
        raise OptionError(f"the schema of bodies is not a JSON schema: {where} has the type {json.dumps(named)[:100]}")
    return [each for each in names if each != "null"] or (["null"] if names else [])
