"""Version of Leveret, which packaging reads from here, and the RabbitMQ release that it follows."""

from __future__ import annotations

VERSION = "0.1.0"

#: Clients and tools compare it as a dotted number to find out which features are supported.
RABBITMQ_VERSION = "3.10.8"
