"""Passwords, keys and tokens in the URL of an archive or data directory: what people are shown does not have them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "********"
"""What stands in the place of a secret."""

#: User and password; a user alone is the container in Azure's URLs. A password may contain a slash that should have
#: been escaped; in `host:22/a@b` there is none.
_USER: Final = re.compile(r"(?<=://)[^/@:]*:(?:[^/]*|(?!\d+/).*)(?=@)")
#: Parameters such as the signature of Azure's stores.
_QUERY: Final = re.compile(r"(?<=\?)[^/?]*=.*")
_BETWEEN_WORDS: Final = re.compile(r"[:/@&=]")
#: Characters of the shortest part of a secret that is masked by itself.
_WORD_MIN: Final = 3


def mask_url(url: str) -> str:
    """Return a URL, or a path, with what is secret in it masked."""
    return _QUERY.sub(MASK, _USER.sub(MASK, url))


def without_secrets(url: str) -> str:
    """Return a URL, or a path, that can be used with the secrets that the environment has."""
    return mask_url(url).replace(f"{MASK}@", "").removesuffix(f"?{MASK}")


def mask_text(text: str, url: str) -> str:
    """Mask the secrets of a URL in an error text, which may repeat parts of it."""
    secrets = [each.partition(":")[2] for each in _USER.findall(url)] + _QUERY.findall(url)
    words = {word for each in secrets for word in (each, *_BETWEEN_WORDS.split(each)) if len(word) >= _WORD_MIN}
    words |= {unquote(word) for word in words}
    text = text.replace(url, mask_url(url))
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, MASK)
    return text
