"""The one place that names the version; packaging reads it from here. And the release of RabbitMQ that it follows."""

from __future__ import annotations

VERSION = "0.1.0"

#: Clients and tools compare it as a dotted number to find out what they may ask for.
RABBITMQ_VERSION = "3.10.8"
