"""Properties keys: names of bindings with the same source and destination in the HTTP API."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from leveret.broker.core.exchanges.bindings import Binding
from leveret.protocol.field_table import encode_table

#: The key of a binding without routing key and arguments.
_EMPTY_KEY: Final = "~"
_HASH_SIZE: Final = 4


def properties_key(binding: Binding) -> str:
    """Return the properties key of a binding: its percent-encoded routing key and a hash of its arguments, if any."""
    # quote_plus does not encode the tilde, which separates key and hash here.
    key = quote_plus(binding.routing_key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or _EMPTY_KEY
    digest = hashlib.blake2b(encode_table(binding.arguments), digest_size=_HASH_SIZE).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode('ascii').rstrip('=')}"


def matches_properties_key(key: str, segment: str) -> bool:
    """Check whether a path segment names the binding with a properties key.

    Args:
        key: The properties key.
        segment: The segment, decoded once. Some clients encode the properties key again for the path.
    """
    return segment == key or unquote_plus(segment) == unquote_plus(key)
