"""Makes the backend and the single sign-on that the options ask for. This module needs no library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.options import Settings
from leveret.storage.clock import Clock

if TYPE_CHECKING:
    from leveret.broker.auth.backends.interface import Backend
    from leveret.broker.auth.oauth2.code_flow import CodeFlow


def open_backend(settings: Settings, clock: Clock) -> Backend:
    """Make the backend `oauth2`.

    Raises:
        ConfigError: The options contradict each other, a file cannot be read, or a Python package is missing.
    """
    try:
        from leveret.broker.auth.oauth2.backend import OAuth2Backend
        from leveret.broker.auth.oauth2.settings import read_settings
        from leveret.broker.auth.oauth2.verifier import TokenVerifier
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"auth_backends: oauth2 needs the Python package {error.name}: pip install 'leveret[oauth2]'"
        ) from error
    return OAuth2Backend(TokenVerifier(read_settings(settings.auth_oauth2), clock))


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
