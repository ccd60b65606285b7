"""HTTP server of the management API, the web pages and the metrics."""
