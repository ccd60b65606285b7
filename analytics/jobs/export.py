"""Job export: writes new messages to Parquet, in directories by virtual host, queue and date.

A name that is a part of a path comes back as a number, a date or nothing if it looks like one, and a long one fits into
no path. So the columns `vhost` and `queue` are in the files, and directories are called by columns of their own:
`vhost_dir` and `queue_dir`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.jobs.job_options import JobOptions, Results, whole_spans
from leveret.analytics.option_values import check_reader_name
from leveret.analytics.spark.session import register

#: Has a list for each batch; every tenth has all that came before, too.
_LISTS: Final = "_spark_metadata"


@contextmanager
def only_export(output: str) -> Iterator[None]:
    """Keep other exports away from a directory, in which only finished files are at the beginning and at the end.

    Args:
        output: The directory. One that is not local is left alone.
    Raises:
        AnalyticsError: Another export writes to it, or a file cannot be removed.
    """
    if "://" in output:
        yield
        return
    os.makedirs(output, exist_ok=True)
    handle = os.open(output, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AnalyticsError(f"another export writes to {output}; wait until it has ended") from error
        _remove_unfinished(Path(output))
        yield
        _remove_unfinished(Path(output))
    finally:
        os.close(handle)


def _remove_unfinished(output: Path) -> None:
    """Remove what an interrupted batch has left: files of Spark that came after its last list, and are in none."""
    lists = [*output.glob(f"{_LISTS}/[0-9]*")]
    if not (output / _LISTS).is_dir():
        return
    finished = {name for each in lists for name in _names_in(each)}
    since = max((each.stat().st_mtime_ns for each in lists), default=0)
    for path in output.glob("vhost_dir=*/queue_dir=*/date=*/part-*.parquet"):
        if str(path.relative_to(output)) not in finished and path.stat().st_mtime_ns >= since:
            try:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            except OSError as error:
                raise AnalyticsError(f"{path} is of an interrupted export and cannot be removed: {error}") from error


def _names_in(batch: Path) -> Iterator[str]:
    """Yield the names of the files in a list. It has absolute paths, of the place where the directory was then."""
    # The first line is the version of the list.
    for line in batch.read_text(encoding="utf-8").splitlines()[1:]:
        path = unquote(urlsplit(json.loads(line)["path"]).path)
        yield path[path.rindex("/vhost_dir=") + 1 :]


#: Maximum number of starts of a query.
STARTS: Final = 20
#: Spark waits 10 s for the Python process of a streaming source to start; this is not configurable.
_TOO_SLOW: Final = "Python worker failed to connect back"


def run_to_end(start: Callable[[], StreamingQuery]) -> None:
    """Run a query to its end; start it again if its Python process did not start in time.

    Args:
        start: Starts the query. It continues from its checkpoint, so a further start writes nothing twice.
    Raises:
        StreamingQueryException: The query failed for another reason, or at every start.
    """
    for further in reversed(range(STARTS)):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if not further or _TOO_SLOW not in str(error):
                raise
        else:
            return


_DAY: Final = 86_400_000_000
#: Names that are directories as they are: Spark escapes what paths cannot have, a character by three.
_AS_IT_IS: Final = "^[ -~]{1,80}$"


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Write messages that have not been exported yet, each once, also if a run is interrupted and repeated.

    Args:
        options: `output` is the directory to write to, which also has the checkpoint (`_checkpoint`); `max_records` is
            the maximum number of messages per batch, 100,000 by default; `fail_on_data_loss` is `false` to go on if
            messages were removed since the last export that it has not seen, and to say how many on stderr; `reader`
            is the name of the reader for which the broker keeps them.
    Returns:
        `export`: the number of exported messages by virtual host, queue and date.
    Raises:
        OptionError: The output directory is missing or in another layout, or `as_of` is set; or an archive is given.
        AnalyticsError: Another export writes to the directory.
    """
    output = check(options)
    register(spark)
    # Spark's default, INT96, has no statistics, and is read as a time without a zone.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    given = options.named(
        failOnDataLoss=options.values.get("fail_on_data_loss", "true"),
        reader=options.values.get("reader", ""),
        maxRecordsPerTrigger=options.values.get("max_records", "100000"),
    )
    messages = spark.readStream.format("leveret").options(**given).load(options.locations[0])
    # The date must not depend on the session's time zone, so that every run uses the same directories.
    date = f.date_from_unix_date(whole_spans(f.unix_micros("enqueued_at"), _DAY).cast("int"))
    names = {f"{name}_dir": _directory(f.col(name)) for name in ("vhost", "queue")}
    dated = messages.withColumns({**names, "date": date})
    writer = (
        dated.writeStream.partitionBy(*names, "date")
        .option("checkpointLocation", f"{output}/_checkpoint")
        .trigger(availableNow=True)
    )
    queries: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        queries.append(writer.start(output, format="parquet"))
        return queries[-1]

    with only_export(output):
        run_to_end(start)
    for query in queries:
        _tell_missed(query)
    written = spark.read.schema(dated.schema).parquet(output)
    counts = written.groupBy("vhost", "queue", "date").agg(f.count("*").alias("messages"))
    return {"export": counts.orderBy("vhost", "queue", "date")}


def check(options: JobOptions) -> str:
    """Return the directory to write to.

    Raises:
        OptionError: It is missing or in another layout; or an option does not apply, or there is an archive.
    """
    if options.sources is not None:
        raise OptionError(
            f"{options.sources.archive} is an archive, which has messages in Parquet files already: read those, or "
            "export from one data directory"
        )
    if options.output is None:
        raise OptionError("name the directory to write to: --output DIR")
    if options.as_of is not None:
        raise OptionError("--as-of does not apply to an export, which continues from the last one")
    check_reader_name(options.values.get("reader", ""))
    _check_layout(options.output)
    return options.output


def _directory(name: Column) -> Column:
    """Return the names of directories: the name itself, or the beginning and a checksum of one that makes no path."""
    beginning = f.regexp_replace(f.substring(name, 1, 40), "[^A-Za-z0-9._-]", "_")
    checksum = f.substring(f.sha2(name, 256), 1, 16)
    return f.when(name.rlike(_AS_IT_IS), name).otherwise(f.concat(beginning, f.lit("~"), checksum))


def _check_layout(output: str) -> None:
    """Refuse a directory in which the names of queues are in the paths alone."""
    try:
        found = [name for name in os.listdir(output) if name.startswith("vhost=")]
    except OSError:
        return
    if found:
        raise OptionError(
            f"{output}/{found[0]} is of an export with another layout, in which names of queues are parts of paths; "
            "name another directory"
        )


def _tell_missed(query: StreamingQuery) -> None:
    """Say how many messages a query has missed, by queue."""
    steps = [source for progress in query.recentProgress for source in progress["sources"]]
    if not steps:
        return
    before, after = (
        (json.loads(offset or "null") or {}).get("missed", {})
        for offset in (steps[0]["startOffset"], steps[-1]["endOffset"])
    )
    for vhost, queues in after.items():
        for queue, count in queues.items():
            missed = count - before.get(vhost, {}).get(queue, 0)
            if missed:
                sys.stderr.write(f"{missed} messages of queue '{queue}' in virtual host '{vhost}' were not exported\n")
