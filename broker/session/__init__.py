"""AMQP sessions over asyncio: listeners, connections and channels."""
