"""The command delete_messages, for messages whose keys a reader of the data directory knows. RabbitMQ has none."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, TextIO

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.commands.jobs import to_fault
from leveret.broker.management.cli.faults import (
    DATA,
    TEMPORARY,
    UNAVAILABLE,
    ApiFault,
    RequestTimeout,
    Unreachable,
    bad_argument,
    failed,
)
from leveret.broker.management.cli.message_keys import COLUMNS, MessageKey, read_keys

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
    """What was deleted, and what was skipped.

    Args:
        file: Where all skipped messages are written as CSV; None to keep the first ones only.

    Attributes:
        deleted: Number of messages that were deleted.
        skipped: Numbers of those that were not, by reason.
        shown: The first of those.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._rows = None if file is None else csv.writer(file, lineterminator="\n")
        if self._rows is not None:
            self._rows.writerow((*COLUMNS, "reason"))
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
                self._rows.writerow([row[name] for name in (*COLUMNS, "reason")])
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
        lines += [f"  {','.join(str(each[name]) for name in COLUMNS)}: {each['reason']}" for each in self.shown]
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


def _check(context: CommandContext) -> None:
    source = context.text("keys")
    if not source:
        raise bad_argument("--keys <file> is needed")
    if source != "-" and not Path(source).exists():
        raise bad_argument(f"there is no file {source}")
    if context.text("skipped") and source != "-":
        written, read = Path(context.text("skipped")).resolve(), Path(source).resolve()
        if written == read or read in written.parents:
            raise bad_argument("--skipped <file> would overwrite the keys")


def _delete(context: CommandContext) -> Result:
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
                report.add(batch[0].queue_id, _request(context, batch, is_trial))
        except ApiFault as fault:
            raise to_fault(fault, "delete-messages", report.before) from fault
        except (OSError, ValueError) as error:
            raise failed(f"{error}{report.before}", DATA) from error
        except (Unreachable, RequestTimeout) as error:
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


def _request(context: CommandContext, batch: list[MessageKey], is_trial: bool) -> dict[str, Any]:
    (queue,) = context.arguments
    keys = [key[1:] for key in batch]
    body = {"queue_id": batch[0].queue_id, "keys": keys, "dry_run": is_trial}
    answer: dict[str, Any] = context.api.post("queues", context.vhost, queue, "delete-messages", body=body)
    return answer


def _banner(context: CommandContext) -> str:
    return f"Deleting messages of queue '{context.arguments[0]}' in vhost '{context.vhost}' ..."


COMMANDS: Final = (
    Command(
        name="delete_messages",
        section="Queues",
        summary="Deletes single messages of a queue by their keys in the tables for Spark; it may be repeated",
        usage="[--vhost <vhost>] <queue> --keys <file> [--skipped <file>] [--dry-run] [--timeout <timeout>]",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        options=("keys", "skipped"),
        timeout=None,
        supports_dry_run=True,
        banner=_banner,
        check=_check,
        explanations=(
            ("<queue>", "the queue; it is refused if it was deleted and declared again since the keys were read"),
            (
                "--keys <file>",
                "CSV with a header or JSON lines, with the columns queue_id, store_priority and seq of the table"
                " messages; a directory that Spark has written; - for standard input",
            ),
            (
                "--skipped <file>",
                "write the messages that were not deleted to a file, with the reason: unacked, waiting, gone, unknown"
                " or damaged",
            ),
            ("--dry-run", "count, and delete nothing"),
        ),
    ),
)
