-- Attaches the broker's catalog as "lake", with DuckDB 1.5 and its extensions from PyPI.
load '/duckdb/duckdb_extension_httpfs/extensions/v1.5.5/httpfs.duckdb_extension';
load '/duckdb/duckdb_extension_avro/extensions/v1.5.5/avro.duckdb_extension';
load '/duckdb/duckdb_extension_iceberg/extensions/v1.5.5/iceberg.duckdb_extension';
create secret (
    type http,
    scope 'http://broker:15672/iceberg',
    extra_http_headers map {
        'Authorization': 'Basic ' || to_base64(encode(getenv('LAKE_USER') || ':' || getenv('LAKE_PASS')))
    }
);
attach 'lake' as lake (type iceberg, endpoint 'http://broker:15672/iceberg', authorization_type 'none');
