"""Management of a running broker: HTTP API, web pages and command line."""
