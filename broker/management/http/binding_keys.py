"""How the HTTP API names one binding among those of the same source and destination: its properties key."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from leveret.broker.core.bindings import Binding
from leveret.protocol.field_table import encode_table

#: Of a binding without routing key and arguments.
_BARE: Final = "~"
_HASH_SIZE: Final = 4


def properties_key(binding: Binding) -> str:
    """The properties key of a binding: its routing key, percent-encoded, and a hash of its arguments, if any."""
    # Python leaves the tilde alone, which here separates key and hash.
    key = quote_plus(binding.routing_key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or _BARE
    digest = hashlib.blake2b(encode_table(binding.arguments), digest_size=_HASH_SIZE).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode('ascii').rstrip('=')}"


def is_named(key: str, segment: str) -> bool:
    """Whether a path segment means the binding with a properties key.

    Args:
        key: The properties key.
        segment: Decoded once. Some clients encode the properties key for the path, others take it as it is.
    """
    return segment == key or unquote_plus(segment) == unquote_plus(key)
