"""Bodies as columns: reads JSON, Avro and Protobuf into the column `value`."""
