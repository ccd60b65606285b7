"""OAuth 2 and OpenID Connect: users whom a provider's signed tokens (JWT) name, and whose scopes are their permissions.

`backend.py` is the interface. `settings.py` reads the options, `providers.py` gets the keys of a provider, `keys.py`
reads them, `tokens.py` verifies a token by them, finds name and scopes in it, and says what they allow. Needs PyJWT and
cryptography, the extra `leveret[oauth2]`.

Source: RFC 7515, 7517, 7519 and 8725; https://www.rabbitmq.com/docs/oauth2
"""
