"""Handlers of AMQP methods, one module per class."""
