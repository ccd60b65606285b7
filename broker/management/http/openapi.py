"""The description of the API in the format OpenAPI: openapi.yaml with its abbreviations written out.

The schemas of objects are made from the tables of fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from leveret.broker.management.fields import SCHEMAS, Table

_METHODS: Final = ("get", "put", "post", "delete")
_RANGES: Final = ("lengths", "msg_rates", "data_rates")
_SORTED: Final = ("sort", "sort_reverse", "columns")
#: Parameters of a query by the name of the group.
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "sorted": _SORTED,
    "paged": ("page", "page_size", "filter", "use_regex", *_SORTED),
    "rates": ("disable_stats", *(f"{kind}_{part}" for kind in _RANGES for part in ("age", "incr"))),
}
#: What has shorter names in openapi.yaml.
_SHORT: Final = frozenset(("login", "query", "body", "shows", "lists", "pages", "done", "creates", "responses"))


@cache
def document() -> dict[str, Any]:
    """Return the description. The first call takes half a second."""
    described = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    paths, components = described.pop("paths"), described.pop("components")
    parameters = components["parameters"].items()
    components["parameters"] = {name: _parameter(name, short) for name, short in parameters}
    components["schemas"] |= {name: schema_of(table) for name, table in SCHEMAS.items()}
    items = {path: _path_item(tag, path, item) for tag, below in paths.items() for path, item in below.items()}
    for operation in (item[method] for item in items.values() for method in _METHODS if method in item):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if "required" in components["schemas"].get(body.get("$ref", "").rpartition("/")[2], {}):
            operation["requestBody"]["required"] = True
    return {**described, "tags": [{"name": tag} for tag in paths], "paths": items, "components": components}


def _parameter(name: str, short: Mapping[str, Any]) -> dict[str, Any]:
    made = {"name": name, "in": "query", "schema": {"type": "string"}, **short}
    return {**made, "required": True} if made["in"] == "path" else made


def _reference(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _json(name: str) -> dict[str, Any]:
    """Return the content of a schema."""
    return {"application/json": {"schema": _schema(name)}}


def _schema(name: str) -> dict[str, Any]:
    return {"type": "object"} if name == "object" else _reference("schemas", name)


def _path_item(tag: str, path: str, item: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in item.items() if key not in _METHODS}
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        made["parameters"] = [_reference("parameters", name) for name in names]
    return made | {key: _operation(tag, path, key, item[key]) for key in _METHODS if key in item}


def _operation(tag: str, path: str, method: str, short: Mapping[str, Any]) -> dict[str, Any]:
    query = short.get("query", [])
    names = [query] if isinstance(query, str) else query
    named = [each for name in names for each in _GROUPS.get(name, (name,))]
    made = {"tags": [tag], **{key: value for key, value in short.items() if key not in _SHORT}}
    if named or "parameters" in short:
        made["parameters"] = [*(_reference("parameters", name) for name in named), *short.get("parameters", ())]
    if short.get("login") is False:
        made["security"] = []
    if "body" in short:
        made["requestBody"] = {"content": _json(short["body"])}
    may_refuse = method != "get" or "pages" in short or "rates" in names
    made["responses"] = dict(_responses(short, may_refuse, "{" in path))
    for status, said in short.get("responses", {}).items():
        more = _reference("responses", said) if isinstance(said, str) else dict(said)
        if "schema" in more:
            more["content"] = _json(more.pop("schema"))
        made["responses"][status] = made["responses"].get(status, {}) | more if "description" in more else more
    return made


def _responses(short: Mapping[str, Any], may_refuse: bool, has_names: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the responses that an operation has by its abbreviations."""
    if short.get("shows") == "check":
        yield "200", {"description": "The check has succeeded.", "content": _json("object")}
        yield "503", _reference("responses", "CheckFailed")
    elif "shows" in short:
        yield "200", {"description": "The object.", "content": _json(short["shows"])}
    for key, description in (("lists", "The objects."), ("pages", "The objects, or one page of them.")):
        if key in short:
            schema: dict[str, Any] = {"type": "array", "items": _schema(short[key])}
            if key == "pages":
                schema = {"oneOf": [schema, _reference("schemas", "Page")]}
            yield "200", {"description": description, "content": {"application/json": {"schema": schema}}}
    if "creates" in short:
        yield "201", {"description": "The object was created."}
        yield "204", {"description": "The object existed and now is as requested."}
    elif "done" in short:
        yield "204", _reference("responses", "Done")
    if may_refuse:
        yield "400", _reference("responses", "BadRequest")
    if short.get("login") is not False:
        yield "401", _reference("responses", "NotAuthorised")
    if has_names:
        yield "404", _reference("responses", "NotFound")


def schema_of(table: Table) -> dict[str, Any]:
    """Return the schema of a table's documents. Parts of an object are in it, unless it has a schema of its own."""
    properties: dict[str, Any] = {}
    for field in table:
        owner, _, part = field.name.rpartition(".")
        types = field.type.split("|")
        text = field.text + (f" ({', '.join(field.of)})." if field.of else ".")
        if types[0].endswith("[]"):
            items = _schema(types[0].removesuffix("[]"))
            properties[field.name] = {"type": "array", "description": text, "items": items}
        elif types[0][0].isupper():
            properties[field.name] = _schema(types[0])
        elif field.source and (not owner or "type" in properties.get(owner, {})):
            within = properties
            if owner:
                is_array = properties[owner]["type"] == "array"
                holder = properties[owner].setdefault("items", {"type": "object"}) if is_array else properties[owner]
                within = holder.setdefault("properties", {})
            known = {} if types == ["any"] else {"type": types if len(types) > 1 else types[0]}
            within[part] = {**known, "description": text}
    return {"type": "object", "properties": properties}
