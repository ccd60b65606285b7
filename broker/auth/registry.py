"""Makes the backends that `auth_backends` names, and the single sign-on of the web pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backend_interface import Backend
from leveret.broker.auth.backends.answers import AnswerCache
from leveret.broker.auth.backends.chain import NAME, AuthBackends
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.options import Settings
from leveret.storage.clock import Clock

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow


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
    try:
        from leveret.broker.auth.oauth2.backend import OAuth2Backend
        from leveret.broker.auth.oauth2.settings import read_settings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"auth_backends: oauth2 needs the Python package {error.name}: pip install 'leveret[oauth2]'"
        ) from error
    return OAuth2Backend(read_settings(settings.auth_oauth2), clock)


def _make_ldap(settings: Settings, cache: AnswerCache, clock: Clock) -> Backend:
    from leveret.broker.auth.ldap.backend import LdapBackend

    return LdapBackend(settings.auth_ldap, cache)


#: What makes a backend, by name; `broker/config/auth.py` has the same names.
BACKENDS: Final[dict[str, Callable[[Settings, AnswerCache, Clock], Backend]]] = {
    "http": _make_http,
    "oauth2": _make_oauth2,
    "ldap": _make_ldap,
}


def open_sign_on(settings: Settings, backend: Backend | None, clock: Clock) -> CodeFlow | None:
    """Make the single sign-on of the web pages; None if it is not asked for.

    Args:
        settings: The options.
        backend: The backend that verifies its tokens; None if `auth_backends` does not have it.
        clock: The broker's clock.
    Raises:
        ConfigError: The options contradict each other.
    """
    options = settings.management
    if not options.oauth_enabled:
        return None
    if backend is None:
        raise ConfigError("management.oauth_enabled: needs oauth2 in auth_backends, which verifies the tokens")
    url = options.oauth_provider_url or settings.auth_oauth2.issuer
    for name, value in (("oauth_client_id", options.oauth_client_id), ("oauth_provider_url", url)):
        if not value:
            raise ConfigError(f"management.oauth_enabled: needs management.{name}")
    from leveret.broker.auth.oauth2.backend import OAuth2Backend
    from leveret.broker.auth.oauth2.code_flow import CodeFlow

    assert isinstance(backend, OAuth2Backend)
    return CodeFlow(backend.provider(url), options, clock)
