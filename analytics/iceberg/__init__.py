"""The files of archives as Iceberg tables: in a catalog that pyiceberg speaks to, or in the archive itself.

Source: https://iceberg.apache.org/spec/ (format version 2)
"""
