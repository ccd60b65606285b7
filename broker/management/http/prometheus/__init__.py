"""Metrics for Prometheus: RabbitMQ's metrics, with their names, and Leveret's own."""
