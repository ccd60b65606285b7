"""Makes the backends that `auth_backends` names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.answers import AnswerCache
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.auth.backends.interface import Backend
from leveret.broker.auth.backends.internal import NAME
from leveret.broker.auth.oauth2.opening import open_backend
from leveret.broker.config.options import Settings
from leveret.storage.clock import Clock


def make_backends(
    settings: Settings, accounts: Accounts, loop: asyncio.AbstractEventLoop, clock: Clock
) -> AuthBackends:
    """Return the backends of a broker.

    Args:
        accounts: The broker's own users.
        clock: The broker's clock.
    Raises:
        ConfigError: Options of a backend cannot be used, or a package is missing; the text begins with the option.
        TlsError: Certificates of a backend cannot be used.
    """
    ttl = settings.auth_cache.ttl / 1000
    named = {name for entry in settings.auth_backends for name in entry.split("+")} - {NAME}
    others = {name: BACKENDS[name](settings, AnswerCache(ttl, accounts, loop), clock) for name in named}
    return AuthBackends(accounts, settings.auth_backends, others, ttl)


# Imported where they are used: most brokers have no need of their libraries.


def _make_http(settings: Settings, cache: AnswerCache, clock: Clock) -> Backend:
    from leveret.broker.auth.backends.http import HttpBackend

    return HttpBackend(settings.auth_http, cache)


def _make_oauth2(settings: Settings, cache: AnswerCache, clock: Clock) -> Backend:
    # A token says all that is asked: there are no answers to keep.
    return open_backend(settings, clock)


def _make_ldap(settings: Settings, cache: AnswerCache, clock: Clock) -> Backend:
    from leveret.broker.auth.ldap.backend import LdapBackend

    return LdapBackend(settings.auth_ldap, cache)


#: What makes a backend, by name; `broker/config/auth.py` has the same names.
BACKENDS: Final[dict[str, Callable[[Settings, AnswerCache, Clock], Backend]]] = {
    "http": _make_http,
    "oauth2": _make_oauth2,
    "ldap": _make_ldap,
}
