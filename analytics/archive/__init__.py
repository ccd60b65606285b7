"""Archives: messages, events and audit logs of brokers as Parquet files, on any file system fsspec knows.

The archive (`analytics/archive/`, `archiver.py`) is read and written by way of fsspec. The archiver is a streaming
query without Spark: it asks `MessageStream` and `EventStream` for the next batch, writes its rows to Parquet files,
and then makes a manifest, which names the files and has the position of both streams. A manifest has the next number
and is made in one step, and fails if that number exists; so it commits a batch exactly once, also if another archiver
runs. Only then is the reader's file advanced. Readers see what manifests name (`archive/manifests.py`); what these say
was copied, they do not read in live directories (`tables/table_plan.py`). With `archive.url` the broker runs the
archiver as a process (`broker/side_programs.py`). The archiver notes in the data directory where the archive is
(`storage/directory/archive_note.py`), so that queries read events there that are older than the log
(`analytics/tables/older_events.py`): the times of events do not go back from one write to the next, so the time at
which the log begins divides them, but for events of exactly that time, which are compared. An older version ignores
that file.
"""
