"""The way of a message to its queues: routing, dead letters, tracing, publishing without a connection."""
