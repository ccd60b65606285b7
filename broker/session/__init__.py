"""The asyncio shell around protocol and core: listeners, connections, channels."""
