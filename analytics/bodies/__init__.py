"""Bodies as columns: reads JSON, Avro and Protobuf into the column `value`.

Bodies as columns (`analytics/bodies/`). Where a query is planned, `tables/table_query.py` finds the type of the column
`value`, for JSON from a sample (`tables/sampling.py`), and makes a `BodyFormat` that goes to the workers; its reader
makes an array of each segment's bodies. JSON is read a thousand bodies at a time by Arrow (`json_bodies.py`). If one
of them is not exactly of the type, smaller parts are tried, and a few bodies are read one by one, so that each gets
its own reason. Types travel as Spark's DDL, which `sql_types.py` reads without any library, and `value_types.py` makes
Arrow types of. `rule_check.py` is the program that the broker asks whether the schemas of rules can work.
"""
