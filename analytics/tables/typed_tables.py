"""Tables of an archive with what bodies say: one for each rule for bodies, with the messages of its queues.

The archiver writes them with the messages, in the same manifest, so each message is in them once. A manifest's position
has the type of `value` of each table. A rule whose type gets further fields, or wider ones, adds these to its table.
One whose type does not fit any more is left out until it fits, and the archive goes on. A body that cannot be read is
kept with its reason. If the registry was away, it is read again when its file is put together with others.

The table of the rule `orders` is `bodies_orders`. It has the columns of `messages`, `value` and `value_error`; `body`
is null where `value` has all of it. Its columns have no numbers: other programs know them by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.archive.file_reading import conformed
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.bodies.body_format import format_of_bodies
from leveret.analytics.bodies.payloads import BodyReader, Payloads, archived_payloads, columns_of
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.columns import ARCHIVED_TABLES, OF_RULE, VALUE, VALUE_ERROR
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.option_values import BodyOptions
from leveret.analytics.tables.body_rules import rules_of
from leveret.storage.readers.body_rules import BodyRule
from leveret.storage.readers.reader_file import matches

#: What reasons of bodies have that may be readable later.
_OF_REGISTRY: Final = "registry"
#: Integers and fractions, each after those that fit into it.
_WIDER: Final = ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


class UnfitTypeError(Exception):
    """A table cannot take values of a type; the text says which field."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A table to which rows are written.

    Attributes:
        reader: Reads bodies, as the rule says.
        kind: Type of the values in the table, which may have more fields than the reader's.
    """

    rule: BodyRule
    reader: BodyReader
    kind: pa.DataType


class TypedTables:
    """The tables of the rules of a data directory.

    Args:
        types: Types of `value` in DDL by table, as the manifests of all brokers of the archive have them; they cannot
            become narrower.
        say: Tells the user that something is wrong.

    Attributes:
        types: The same, and those of new tables.
    """

    def __init__(self, data_dir: str, types: Mapping[str, str], say: Callable[[str], object]) -> None:
        self._data_dir = data_dir
        self._say = say
        self._said: dict[str, str] = {}
        self._open: dict[str, _Open] = {}
        self.types = dict(types)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The schemas of all tables, also of rules that are gone, by name."""
        return {table: _schema_of(parse_type(ddl)) for table, ddl in self.types.items()}

    def refresh(self) -> list[BodyRule]:
        """Read the rules again, which apply from now on, and return them."""
        rules = rules_of(self._data_dir)
        self._open = {}
        for rule in rules:
            table = OF_RULE + rule.name
            try:
                self._open[table] = self._opened(table, rule)
            except AnalyticsError as error:
                text = f"rule '{rule.name}' for bodies: {error}"
                if self._said.get(table) != text:
                    self._said[table] = text
                    self._say(f"{text} (the archive goes on without table {table})")
            else:
                self._said.pop(table, None)
        return rules

    def _opened(self, table: str, rule: BodyRule) -> _Open:
        known = self.types.get(table)
        try:
            found = format_of_bodies(BodyOptions(rule.form, rule.schema, rule.message, rule=rule))
        except AnalyticsError as error:
            if known is None or not rule.registry:
                raise
            # The rows are there, and are read when the registry is back.
            kind = parse_type(known)
            return _Open(rule, _Unreadable(kind, str(error)), kind)
        kind = found.kind if known is None else _merged(table, parse_type(known), found.kind)
        self.types[table] = type_ddl(kind)
        # Bodies without a schema of their own are read as what the table has.
        reader = (replace(found, ddl=type_ddl(kind)) if found.form == "json" else found).reader()
        return _Open(rule, reader, kind)

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of messages for each table that has some of them.

        Args:
            batch: Rows of the archived table `messages`, all columns.
        """
        names = batch.select(["vhost", "queue"])
        there = pa.Table.from_batches([names]).group_by(["vhost", "queue"]).aggregate([]).to_pylist()
        for table, each in self._open.items():
            wanted = [name for name in there if _is_of(each.rule, name["vhost"], name["queue"])]
            if len(wanted) == len(there):
                yield table, _typed(batch, each)
            elif wanted:
                is_wanted = pa.array(
                    [_is_of(each.rule, *pair) for pair in zip(*(column.to_pylist() for column in names), strict=True)]
                )
                yield table, _typed(batch.filter(is_wanted), each)

    def reread(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a table in which bodies that a registry was away for are read again."""
        each = self._open.get(table)
        reasons = batch.column(VALUE_ERROR)
        again = pc.fill_null(pc.match_substring(reasons, _OF_REGISTRY), False)
        if each is None or not pc.any(again).as_py():
            return batch
        found = _typed(batch.filter(again), each)
        places = iter(range(found.num_rows))
        take = pa.array([batch.num_rows + next(places) if one else row for row, one in enumerate(again.to_pylist())])
        both = pa.Table.from_batches([batch, found.select(batch.schema.names).cast(batch.schema)])
        (whole,) = both.take(take).combine_chunks().to_batches()
        return whole


class _Unreadable:
    """Reads nothing, for a reason.

    Attributes:
        kind: The type of the values.
    """

    def __init__(self, kind: pa.DataType, reason: str) -> None:
        self.kind = kind
        self._reason = reason

    def read(self, payloads: Payloads) -> pa.Array:
        """Return nulls, each with the reason."""
        payloads.reasons.update(dict.fromkeys(range(len(payloads.octets)), self._reason))
        return pa.nulls(len(payloads.octets), self.kind)


def _schema_of(kind: pa.DataType) -> pa.Schema:
    """Return the schema of a table whose values are of a type."""
    types = ARCHIVED_TABLES["messages"]
    return schema_of({**types, VALUE: "string", VALUE_ERROR: "string"}, [*types, VALUE, VALUE_ERROR], kind)


def merged_type(known: pa.DataType, found: pa.DataType, where: str = VALUE) -> pa.DataType:
    """Return the type that has the values of two.

    Args:
        known: The type of a table: its fields stay, in their order.
        found: The type of what comes: further fields are added.
        where: The field, for error texts.
    Raises:
        UnfitTypeError: There is no such type.
    """
    if known == found:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        others = {field.name: field.type for field in found}
        fields = {
            field.name: merged_type(field.type, others.get(field.name, field.type), f"{where}.{field.name}")
            for field in known
        }
        return pa.struct(list((fields | {name: kind for name, kind in others.items() if name not in fields}).items()))
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(merged_type(known.value_type, found.value_type, f"{where}[]"))
    if pa.types.is_map(known) and pa.types.is_map(found) and known.key_type == found.key_type:
        return pa.map_(known.key_type, merged_type(known.item_type, found.item_type, f"{where}[]"))
    for kinds in _WIDER:
        if known in kinds and found in kinds:
            return kinds[max(kinds.index(known), kinds.index(found))]
    if pa.types.is_decimal128(known) and pa.types.is_decimal128(found) and known.scale == found.scale:
        return known if known.precision > found.precision else found
    raise UnfitTypeError(f"{where} was {type_ddl(known)}, and is {type_ddl(found)}")


def _merged(table: str, known: pa.DataType, found: pa.DataType) -> pa.DataType:
    try:
        return merged_type(known, found)
    except UnfitTypeError as error:
        raise AnalyticsError(
            f"its type does not fit {table} any more: {error}; give the rule its old type, or another name"
        ) from None


def _is_of(rule: BodyRule, vhost: Any, queue: Any) -> bool:
    return vhost is not None and queue is not None and matches(vhost, rule.vhost) and matches(queue, rule.queue)


def _typed(batch: pa.RecordBatch, table: _Open) -> pa.RecordBatch:
    """Return rows of messages as those of a table; a body is kept where it is not in the value as a whole."""
    found = columns_of(archived_payloads(batch), table.reader)
    value, reason = conformed(found[VALUE], table.kind), found[VALUE_ERROR]
    is_whole = pc.and_(pc.is_valid(value), pc.is_null(reason))
    body = pc.if_else(is_whole, pa.scalar(None, pa.binary()), batch.column("body"))
    arrays = {name: batch.column(name) for name in batch.schema.names}
    arrays |= {"body": body, VALUE: value, VALUE_ERROR: reason}
    schema = _schema_of(table.kind)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
