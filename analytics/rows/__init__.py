"""Rows of the tables: reads records and events out of files, in bulk, into Arrow record batches."""
