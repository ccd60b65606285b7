"""Durable bytes: knows positions and raw message bytes, not AMQP methods."""
