"""The backend `oauth2`: the password is a token."""

from __future__ import annotations

from leveret.broker.auth.backends.interface import Explanation, Identity, Login, Question, Refused, Resource
from leveret.broker.auth.backends.internal import shortened
from leveret.broker.auth.oauth2.errors import TokenRefused
from leveret.broker.auth.oauth2.providers import Provider
from leveret.broker.auth.oauth2.scopes import Scopes
from leveret.broker.auth.oauth2.verifier import TokenVerifier
from leveret.policies.permissions import Kind, TopicKind

#: Its name in `auth_backends`.
NAME = "oauth2"


class OAuth2Backend:
    """See Backend.

    Args:
        verifier: Verifies the tokens.
    """

    module = "rabbit_auth_backend_oauth2"

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def authenticate(self, login: Login) -> Identity:
        """Verify the token that is sent as password.

        The user is the one that the token names; what the client calls itself counts only if it names none.

        Raises:
            Refused: The token is not valid, or its key cannot be had in time.
        """
        return await _identity(self._verifier, login.name, login.secret)

    async def authorize(self, login: Login) -> Identity:
        """Return what a token allows, which another backend has taken as password."""
        return await self.authenticate(login)

    def provider(self, issuer: str) -> Provider:
        """Return a provider by its issuer, for more than its keys.

        Raises:
            ConfigError: Its URL is not one with https.
        """
        return self._verifier.provider(issuer)

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self._verifier.close()


class TokenRights:
    """See Rights: the scopes of a token, known at once."""

    def __init__(self, verifier: TokenVerifier, name: str, scopes: Scopes) -> None:
        self._verifier = verifier
        self._name = name
        self._scopes = scopes

    def vhost(self, vhost: str) -> bool:
        """Return whether any scope is for a virtual host."""
        return self._scopes.allows_vhost(vhost)

    def resource(self, vhost: str, kind: Kind, resource: Resource, name: str) -> bool:
        """Return whether a scope gives a permission on a queue or exchange."""
        return self._scopes.allows(kind, vhost, name)

    def topic(self, vhost: str, kind: TopicKind, exchange: str, routing_key: str) -> bool:
        """Return whether a scope allows a routing key on a topic exchange."""
        return self._scopes.allows_topic(kind, vhost, exchange, routing_key)

    async def explain(self, question: Question) -> Explanation:
        """Return which scope decides."""
        if not question.kind:
            is_allowed = self._scopes.allows_vhost(question.vhost)
            reason = "a scope of the token is for it" if is_allowed else "no scope of the token is for it"
            return Explanation(is_allowed, NAME, reason)
        key = question.routing_key if question.about == "topic" else None
        scope = self._scopes.deciding(question.kind, question.vhost, question.name, key)
        what = "it" if key is None else f"the routing key '{key}'"
        reason = f"no scope of the token allows {what}" if scope is None else f"the token has the scope {scope}"
        return Explanation(scope is not None, NAME, reason)

    async def renew(self, secret: bytes) -> Identity:
        """Go on with another token of the same user."""
        return await _identity(self._verifier, self._name, secret)


async def _identity(verifier: TokenVerifier, name: str, secret: bytes | None) -> Identity:
    try:
        if secret is None:
            raise TokenRefused("there is no token, as the name is proved by other means")
        found = await verifier.verify(name, secret)
    except TokenRefused as refused:
        # RabbitMQ's words.
        text = f"Authentication using an OAuth 2/JWT token failed: {refused}"
        raise Refused(f"user '{shortened(name)}' - {text}") from None
    rights = TokenRights(verifier, found.name, found.scopes)
    return Identity(found.name, found.scopes.tags, rights, found.expires_at)
