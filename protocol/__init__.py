"""AMQP 0-9-1 on the wire: bytes in, events out; frames in, bytes out. No I/O."""
