"""Snapshots: read access for other processes while the broker runs.

With the formats of the files (format.py, event_format.py, event_details.py), names and notes of the directory and the
files of named readers this is what others read a data directory with, such as the analytics; pyproject.toml lists the
modules, and `make lint` checks that nothing else is used.

Versions: the file FORMAT names the format of a directory, and the oldest format whose readers understand it. A reader
that is older raises DataDirectoryError, which says to upgrade it; so whatever a reader would misunderstand raises that
number. Everything else is added so that older readers pass over it: flags of records and events, tags of extensions,
files beside the others, kinds of events. An unknown kind below TICK is an event of a kind without a name, one above it
is left out.
"""
