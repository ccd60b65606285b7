"""Options of OAuth 2, with the names of rabbitmq.conf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leveret.broker.config import kinds
from leveret.broker.config.declaration import group, option


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2Https:
    """TLS of requests to the provider."""

    peer_verification: str = option(
        kinds.choice("verify_none", "verify_peer"), "verify_peer", "Verify the provider's certificate, or not."
    )
    cacertfile: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "PEM file of the authorities that the provider's certificate is verified against; none for the system's.",
    )
    hostname_verification: str = option(
        kinds.choice("wildcard", "none"), "wildcard", "Verify that the certificate is the host's (wildcard), or not."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOAuth2:
    """Users of an OAuth 2 provider (`oauth2` in `auth_backends`), whose passwords are tokens that it has signed."""

    resource_server_id: str = option(
        kinds.text(empty=True),
        "",
        "Name of this broker at the provider; tokens must have it in their audience (`aud`).",
    )
    verify_aud: bool = option(kinds.boolean(), True, "Refuse tokens for another audience.")
    scope_prefix: str | None = option(
        kinds.optional(kinds.text(empty=True)),
        None,
        "Prefix of the scopes that are for this broker; by default `resource_server_id` and a dot.",
    )
    scope_aliases: Mapping[str, object] = option(
        kinds.document(), {}, "Scopes that others stand for: `{ALIAS: SCOPE SCOPE}`."
    )
    additional_scopes_key: str = option(
        kinds.text(empty=True),
        "",
        "Claims with more scopes, with a space between; a path such as `realm_access.roles` is a claim inside another.",
    )
    preferred_username_claims: tuple[str, ...] = option(
        kinds.names(), (), "Claims that the user's name is taken from, before `client_id` and `sub`."
    )
    issuer: str = option(
        kinds.text(empty=True),
        "",
        "URL of the provider: its discovery document says where its keys are, and tokens must have it as `iss`.",
    )
    discovery_endpoint_path: str = option(
        kinds.url_path(), ".well-known/openid-configuration", "Path of the discovery document behind the issuer."
    )
    jwks_uri: str = option(kinds.text(empty=True), "", "URL of the provider's keys, if it is not to be discovered.")
    jwks_url: str = option(kinds.text(empty=True), "", "As `auth_oauth2.jwks_uri`; RabbitMQ 3.10's name.")
    signing_keys: Mapping[str, object] = option(
        kinds.document(), {}, "PEM files of keys that tokens may be signed with, besides the provider's: `{KID: FILE}`."
    )
    default_key: str = option(kinds.text(empty=True), "", "Key of tokens that name none (`kid`).")
    algorithms: tuple[str, ...] = option(
        kinds.names(), (), "Algorithms that tokens may be signed with, such as `RS256`; none for all that are safe."
    )
    https: OAuth2Https = group(OAuth2Https)
    oauth_providers: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Several providers: `{NAME: {issuer: …}}`, with the names `issuer`, `discovery_endpoint_path`, `jwks_uri`,"
        " `signing_keys`, `default_key`, `algorithms` and `https`.",
    )
    default_oauth_provider: str = option(
        kinds.text(empty=True), "", "Provider of resource servers that name none; by default the one of `issuer`."
    )
    resource_servers: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Several names of this broker: `{NAME: {oauth_provider_id: …}}`, with the names `id`, `oauth_provider_id`,"
        " `verify_aud`, `scope_prefix`, `scope_aliases`, `additional_scopes_key` and `preferred_username_claims`.",
    )
    leeway: int = option(
        kinds.duration(0, 600, "s"), 0, "How much the clocks of provider and broker may differ, for `exp` and `nbf`."
    )
