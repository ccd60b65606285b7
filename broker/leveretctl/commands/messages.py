"""Commands for single messages: publish, get, browse, delete_messages."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command, selected_columns
from leveret.broker.leveretctl.command_errors import (
    DATA,
    TEMPORARY,
    UNAVAILABLE,
    ApiFault,
    CommandFault,
    NoAnswer,
    RequestTimeout,
    UsageFault,
    bad_argument,
    failed,
    refused,
)
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.commands.queues import parse_pairs
from leveret.broker.leveretctl.printing import compact_json
from leveret.broker.leveretctl.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import BROWSED_MESSAGE
from leveret.policies.message_filter import CONDITIONS, FilterError, parse_conditions, read_filter

FILTER: Final = option(
    "filter",
    f"{', '.join(CONDITIONS)}, or a JSON object of conditions; messages must match all filters, or with match=any one",
)
MATCH: Final = option("match", "whether all filters must match (default), or one")


def read_filter_options(context: CommandContext) -> dict[str, Any] | None:
    """Parse the options `--filter` and `--match`, as read_conditions() does; None without conditions."""
    conditions = read_conditions(context.text("filter"))
    if "match" in context.options:
        conditions["match"] = context.text("match")
        read_conditions(json.dumps(conditions))
    return conditions or None


def read_conditions(text: str) -> dict[str, Any]:
    """Parse conditions into the `filter` object of the API.

    Args:
        text: One condition per line.

    Raises:
        UsageFault: A condition has another form or an unknown key or value.
    """
    try:
        conditions = parse_conditions(text)
        read_filter(conditions)
    except FilterError as error:
        raise bad_argument(f"--{error}") from None
    return conditions


_PERSISTENT: Final = 2
#: Properties that are numbers.
_NUMBERS: Final = ("delivery_mode", "priority", "timestamp")
#: The default exchange in paths of the API, where no name may be empty.
_DEFAULT_EXCHANGE: Final = "amq.default"
_GET_COLUMNS: Final = ("exchange", "routing_key", "redelivered", "properties", "payload")


@command(
    (
        VHOST,
        Argument("<routing_key>", "the routing key; for the default exchange, the queue's name"),
        Argument("[body]", "the body; default: what stands on the standard input"),
        option("exchange", "the exchange; default: the default exchange"),
        option(
            "property",
            "a property, such as message_id=7 or priority=5; may be repeated. The message is persistent unless"
            " delivery_mode=1 is given",
        ),
        option("header", "a header; the value is JSON, or else text; may be repeated"),
        TIMEOUT,
    ),
    banner="Publishing a message in vhost '{context.vhost}' ...",
    not_found=lambda context, *_: f"no exchange '{context.text('exchange')}' in vhost '{context.vhost}'",
)
def publish(context: CommandContext, routing_key: str, body: str | None = None) -> str:
    """Publishes a message; fails if no queue gets it."""
    properties = {"delivery_mode": _PERSISTENT, **parse_pairs(context, "property", _NUMBERS)}
    if "header" in context.options:
        properties["headers"] = parse_pairs(context, "header")
    message = {
        "routing_key": routing_key,
        "payload": context.stdin.read() if body is None else body,
        "payload_encoding": "string",
        "properties": properties,
    }
    exchange = context.text("exchange") or _DEFAULT_EXCHANGE
    if not context.api.post("exchanges", context.vhost, exchange, "publish", body=message)["routed"]:
        raise failed(f"the message was not routed: no queue is bound for routing key '{routing_key}'")
    return "Message published"


@command(
    (
        VHOST,
        Argument("<queue>", "the queue's name"),
        option("count", "maximum number of messages; default 1"),
        option("ack", "remove them; otherwise they are returned as redelivered, while browse changes nothing"),
        HEADERS,
        TIMEOUT,
    ),
    banner="Getting messages of queue '{0}' in vhost '{context.vhost}' ...",
    not_found="no queue '{0}' in vhost '{context.vhost}'",
)
def get(context: CommandContext, queue: str) -> Result:
    """Takes messages out of a queue and puts them back, or removes them with --ack."""
    body = {
        "count": context.integer("count", 1),
        "ackmode": "ack_requeue_false" if context.flag("ack") else "ack_requeue_true",
        "encoding": "auto",
    }
    found: list[dict[str, Any]] = context.api.post("queues", context.vhost, queue, "get", body=body)
    rows = [{**each, "properties": compact_json(each["properties"] or {})} for each in found]
    return ResultRows(_GET_COLUMNS, rows, json=found)


_COUNT: Final = 20
#: Messages per request.
_PAGE: Final = 500
#: Bytes of a payload that are shown.
_TRUNCATE: Final = 50_000


_BROWSE_COLUMNS: Final = table_columns(BROWSED_MESSAGE)
_BROWSE_DEFAULT: Final = ("place", "state", "age", "routing_key", "payload")


def _check_browse(context: CommandContext) -> None:
    if context.integer("count", _COUNT) < 1:
        raise UsageFault("--count must be 1 or more")
    read_conditions(context.text("filter"))


@command(
    (
        Argument("<queue>", "the queue's name"),
        VHOST,
        option("from", "where to begin: the column place of an earlier message; default: the oldest message"),
        option("count", f"maximum number of messages; default {_COUNT}"),
        FILTER,
        HEADERS,
        Argument("[<column> ...]", columns=_BROWSE_COLUMNS),
        TIMEOUT,
    ),
    banner="Messages of queue '{0}' in vhost '{context.vhost}' ...",
    check=_check_browse,
)
def browse(context: CommandContext, queue: str, *columns: str) -> Result:
    """Shows messages of a queue, ready and unacked, and changes nothing."""
    names = selected_columns(columns, _BROWSE_DEFAULT)
    found: list[dict[str, Any]] = []
    unreadable = ""
    for page in _pages(context, queue):
        found += page["messages"]
        unreadable = page["unreadable"] or unreadable
    if context.json:
        return Outcome(json=found)
    rows = to_rows(_BROWSE_COLUMNS, names, found)
    return rows._replace(footer=f"Some messages could not be read: {unreadable}") if unreadable else rows


def _pages(context: CommandContext, queue: str) -> Iterator[dict[str, Any]]:
    """Yield pages of messages, up to the wanted number of messages."""
    conditions = read_conditions(context.text("filter"))
    wanted = json.dumps(conditions) if conditions else None
    place: str | None = context.text("from") or None
    left = context.integer("count", _COUNT)
    while left > 0:
        query = {"from": place, "count": min(left, _PAGE), "filter": wanted, "truncate": _TRUNCATE}
        try:
            page = context.api.get("queues", context.vhost, queue, "browse", **query)
        except ApiFault as fault:
            raise _browse_fault(context, queue, fault) from fault
        yield page
        left -= len(page["messages"])
        place = page["next"]
        if place is None:
            return


def _browse_fault(context: CommandContext, queue: str, fault: ApiFault) -> CommandFault:
    if fault.not_found and fault.error != "Object Not Found":
        return failed(f"no queue '{queue}' in vhost '{context.vhost}'")
    return refused(fault, "browse")


_INT64_END: Final = 1 << 63


class MessageKey(NamedTuple):
    """The key of a message in the table `messages`."""

    queue_id: int
    store_priority: int
    seq: int


#: The columns that make a key; others are ignored.
_KEY: Final = MessageKey._fields


def read_keys(source: str, stdin: TextIO) -> Iterator[MessageKey]:
    """Iterate over the keys in a file, or in all files of a directory that Spark has written.

    Args:
        source: Path of the file or directory; `-` for standard input.

    Raises:
        OSError: A file cannot be read.
        ValueError: A line has no key; the text says which.
    """
    if source == "-":
        yield from _read(stdin, "standard input")
        return
    path = Path(source)
    for each in _parts(path) if path.is_dir() else [path]:
        with each.open(encoding="utf-8-sig", newline="") as file:
            yield from _read(file, str(each))


def _parts(directory: Path) -> list[Path]:
    """Return the files of a directory, without those that say that Spark has finished, and checksums."""
    return sorted(each for each in directory.iterdir() if each.is_file() and each.name[0] not in "._")


def _read(file: TextIO, name: str) -> Iterator[MessageKey]:
    lines = iter(file)
    try:
        first = next(lines, "")
        read: Callable[[Iterator[str]], Iterator[tuple[int, Mapping[str, Any]]]]
        read = _json_lines if first.lstrip().startswith("{") else _csv_rows
        rows = read(chain([first], lines)) if first else iter(())
        yield from (_key(row, number) for number, row in rows)
    except UnicodeDecodeError:
        raise ValueError(f"{name} is neither CSV nor JSON lines") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}, {error}") from None


def _json_lines(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: not a JSON object")
            yield number, row


def _csv_rows(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(lines)
    missing = [name for name in _KEY if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"line 1: the header does not name {' and '.join(missing)}")
    for row in rows:
        yield rows.line_num, row


def _key(row: Mapping[str, Any], number: int) -> MessageKey:
    values = []
    for name, end in zip(_KEY, (_INT64_END, 256, _INT64_END), strict=True):
        value = row.get(name)
        text = value if isinstance(value, str) else "" if isinstance(value, bool) else str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < end):
            raise ValueError(f"line {number}: {name} is {json.dumps(value)}")
        values.append(int(text))
    return MessageKey(*values)


#: Messages of one request.
_BATCH: Final = 5_000
#: Skipped messages that are shown; `--skipped` writes all.
_SHOWN: Final = 20
#: What is said of skipped messages, by reason.
_WORDS: Final = {
    "unacked": "a consumer holds them",
    "waiting": "they wait for their retry",
    "gone": "they are not in the queue any more",
    "unknown": "the queue never had them",
    "damaged": "they cannot be read",
}


class _Report:
    """What was deleted, and what was skipped: the first messages, and in a file as CSV all of them."""

    def __init__(self, file: TextIO | None) -> None:
        self._rows = None if file is None else csv.writer(file, lineterminator="\n")
        if self._rows is not None:
            self._rows.writerow((*_KEY, "reason"))
        self.deleted = 0
        self.skipped: Counter[str] = Counter()
        self.shown: list[dict[str, Any]] = []

    def add(self, queue_id: int, answer: dict[str, Any]) -> None:
        """Add the answer to a request."""
        self.deleted += answer["deleted"]
        for each in answer["skipped"]:
            self.skipped[each["reason"]] += 1
            row = {"queue_id": queue_id, **each}
            if self._rows is not None:
                self._rows.writerow([row[name] for name in (*_KEY, "reason")])
            if len(self.shown) < _SHOWN:
                self.shown.append(row)

    @property
    def before(self) -> str:
        """What is added to an error: how much was done before."""
        return f" (after {self.deleted} messages)" if self.deleted or self.skipped else ""

    @property
    def is_complete(self) -> bool:
        """Whether all messages have left the queue."""
        return self.skipped.total() == self.skipped["gone"]

    def text(self, is_trial: bool) -> str:
        """Return the report for people."""
        lines = [f"{'Would delete' if is_trial else 'Deleted'} {self.deleted} messages, skipped {self.skipped.total()}"]
        lines += [f"  {count} skipped: {_WORDS.get(reason, reason)}" for reason, count in self.skipped.most_common()]
        lines += [f"  {','.join(str(each[name]) for name in _KEY)}: {each['reason']}" for each in self.shown]
        hidden = self.skipped.total() - len(self.shown)
        if hidden:
            lines.append(f"  and {hidden} more; --skipped <file> writes all" if self._rows is None else "  …")
        return "\n".join(lines)

    def json(self, is_trial: bool) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "deleted": self.deleted,
            "dry_run": is_trial,
            "skipped_count": self.skipped.total(),
            "skipped_by_reason": dict(self.skipped),
            "skipped": self.shown,
            "result": "ok" if self.is_complete else "error",
        }


def _check_keys(context: CommandContext) -> None:
    source = context.text("keys")
    if not source:
        raise bad_argument("--keys <file> is needed")
    if source != "-" and not Path(source).exists():
        raise bad_argument(f"there is no file {source}")
    if context.text("skipped") and source != "-":
        written, read = Path(context.text("skipped")).resolve(), Path(source).resolve()
        if written == read or read in written.parents:
            raise bad_argument("--skipped <file> would overwrite the keys")


@command(
    (
        VHOST,
        Argument("<queue>", "the queue; it is refused if it was deleted and declared again since the keys were read"),
        option(
            "keys",
            "CSV with a header or JSON lines, with the columns queue_id, store_priority and seq of the table"
            " messages; a directory that Spark has written; - for standard input",
        ),
        option(
            "skipped",
            "write the messages that were not deleted to a file, with the reason: unacked, waiting, gone, unknown"
            " or damaged",
        ),
        option("dry-run", "count, and delete nothing"),
        TIMEOUT,
    ),
    banner="Deleting messages of queue '{0}' in vhost '{context.vhost}' ...",
    check=_check_keys,
    timeout=None,
)
def delete_messages(context: CommandContext, queue: str) -> Result:
    """Deletes single messages of a queue by their keys in the tables for Spark; it may be repeated."""
    is_trial = context.flag("dry-run")
    with ExitStack() as stack:
        path = context.text("skipped")
        try:
            file = stack.enter_context(open(path, "w", encoding="utf-8", newline="")) if path else None
        except OSError as error:
            raise failed(f"cannot write {path}: {error.strerror}", DATA) from error
        report = _Report(file)
        try:
            for batch in _batches(read_keys(context.text("keys"), context.stdin)):
                report.add(batch[0].queue_id, _request(context, queue, batch, is_trial))
        except ApiFault as fault:
            raise refused(fault, "delete_messages", report.before) from fault
        except (OSError, ValueError) as error:
            raise failed(f"{error}{report.before}", DATA) from error
        except NoAnswer as error:
            if not report.before:
                raise
            text = f"the broker has stopped answering{report.before}; run the command again"
            raise failed(text, TEMPORARY if isinstance(error, RequestTimeout) else UNAVAILABLE) from error
    text, json = report.text(is_trial), report.json(is_trial)
    if not report.is_complete:
        raise failed(text, json=json)
    return Outcome(text, json)


def _batches(keys: Iterator[MessageKey]) -> Iterator[list[MessageKey]]:
    """Group consecutive keys of one queue."""
    for _, group in groupby(keys, key=lambda key: key.queue_id):
        while batch := [*islice(group, _BATCH)]:
            yield batch


def _request(context: CommandContext, queue: str, batch: list[MessageKey], is_trial: bool) -> dict[str, Any]:
    keys = [key[1:] for key in batch]
    body = {"queue_id": batch[0].queue_id, "keys": keys, "dry_run": is_trial}
    answer: dict[str, Any] = context.api.post("queues", context.vhost, queue, "delete-messages", body=body)
    return answer
