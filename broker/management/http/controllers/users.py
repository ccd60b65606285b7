"""Users, and their permissions and topic permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.auth.accounts import User, UserLimits
from leveret.broker.auth.backend_interface import Question, Resource
from leveret.broker.auth.passwords import (
    ALGORITHMS,
    REFUSED_PASSWORD,
    SHA256,
    InvalidHash,
    PasswordRules,
    RefusedPassword,
    choose_hash,
    hash_password,
)
from leveret.broker.auth.user_definitions import dump_permissions, dump_topic_permissions, dump_user, read_tags
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import (
    check_length,
    compile_in_thread,
    read_flag,
    read_object,
    read_text,
    require_keys,
)
from leveret.broker.management.http.responses import (
    bad_request,
    bad_request_if,
    existing,
    json_response,
    not_found,
    object_response,
)
from leveret.broker.operations.virtual_hosts import delete_user
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.permissions import DEFAULT_EXCHANGE, Kind
from leveret.policies.value_checks import USER_LIMITS, limits_error

_KINDS: Final[Mapping[str, Kind]] = {"configure": "configure", "write": "write", "read": "read"}
_RESOURCES: Final[Mapping[str, Resource]] = {"queue": "queue", "exchange": "exchange"}
#: Any name except those of the other resources below.
_NAME: Final = "{user:(?!(?:without-permissions|bulk-delete)/?$)(?=[^/]|/)[^/]*}"


class Users(Controller):
    """The resource ``/api/users``, for administrators only."""

    @route("GET", "users", tag="administrator")
    async def list(self, request: web.Request) -> web.Response:
        """List all users."""
        return await list_response(request, self._accounts.users.values(), _USERS, paginated=True)

    @route("GET", "users/without-permissions", tag="administrator")
    async def list_without_permissions(self, request: web.Request) -> web.Response:
        """List the users without permissions in any virtual host."""
        permitted = {user for user, _ in self._accounts.all_permissions}
        users = [user for user in self._accounts.users.values() if user.name not in permitted]
        return await list_response(request, users, _USERS)

    @route("GET", f"users/{_NAME}", tag="administrator")
    async def show(self, request: web.Request) -> web.Response:
        """Show one user."""
        user = existing(self._accounts.users.get(request.match_info["user"]))
        return object_response(request, dump_user(user))

    @route("PUT", f"users/{_NAME}", tag="administrator")
    async def put(self, request: web.Request) -> web.Response:
        """Create a user, or replace its password and tags. Its permissions, limits and connections stay."""
        name = check_length(request.match_info["user"], "user")
        document = await read_object(request)
        tags = _read_tags(document)
        password_hash, algorithm = _read_password(document, self._accounts.password_rules)
        known = self._accounts.users.get(name)
        limits = _read_limits(document, UserLimits() if known is None else known.limits)
        self._accounts.put_user(User(name, password_hash, algorithm, tags, limits))
        return web.Response(status=201 if known is None else 204)

    @route("DELETE", f"users/{_NAME}", tag="administrator")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a user and close its connections."""
        if not delete_user(self._broker, self._accounts, request.match_info["user"]):
            raise not_found()
        return web.Response(status=204)

    @route("POST", "users/bulk-delete", tag="administrator")
    async def delete_several(self, request: web.Request) -> web.Response:
        """Delete users in order, up to the first that does not exist."""
        document = await read_object(request, "users")
        names = document["users"]
        if not isinstance(names, list | tuple):
            raise bad_request("users must be a list")
        for name in names:
            if not delete_user(self._broker, self._accounts, str(name)):
                raise bad_request(["no_such_user", name])
        return web.Response(status=204)

    @route("GET", f"users/{_NAME}/access", tag="administrator")
    async def explain_access(self, request: web.Request) -> web.Response:
        """Show what each authentication backend says about a permission of a user, and why.

        The first backend that knows the user decides, unless one before it accepts its password or token.
        """
        name, vhost = request.match_info["user"], request.query.get("vhost", "/")
        if vhost not in self._broker.vhosts:
            raise not_found()
        kind = _read_kind(request.query.get("operation"))
        what, named = _read_resource(request.query.get("resource"), kind)
        questions = [Question("vhost", vhost)]
        if kind is not None:
            questions.append(Question(what, vhost, kind, named))
        key = request.query.get("routing_key")
        if key is not None:
            exchange = self._broker.vhosts[vhost].topology.exchanges.get(named)
            if what != "exchange" or kind == "configure" or (exchange is not None and exchange.type_name != "topic"):
                raise bad_request("a routing_key needs a topic exchange, and the operation write or read")
            assert kind is not None
            questions.append(Question("topic", vhost, kind, named, key))
        explained = await self._access.backends.explain(name, questions)
        decisive = next((each for each in explained if each.is_known), None)
        return json_response(
            {
                "user": name,
                "vhost": vhost,
                "operation": kind,
                "resource": None if kind is None else f"{what}/{named}",
                **({} if key is None else {"routing_key": key}),
                "allowed": decisive is not None and decisive.is_allowed,
                "decided_by": None if decisive is None else decisive.backend,
                "backends": [
                    {
                        "backend": each.backend,
                        "known": each.is_known,
                        "allowed": each.is_allowed,
                        "reason": each.reason,
                    }
                    for each in explained
                ],
            }
        )

    @route("GET", "auth/hash_password/{password}", tag="administrator")
    async def hash(self, request: web.Request) -> web.Response:
        """Hash a password in the format of PUT. RabbitMQ 4 has this resource."""
        return json_response({"ok": hash_password(request.match_info["password"])})


def _read_kind(text: str | None) -> Kind | None:
    if text is None or text in _KINDS:
        return None if text is None else _KINDS[text]
    raise bad_request("operation must be configure, write or read")


def _read_resource(text: str | None, kind: Kind | None) -> tuple[Resource, str]:
    """Return the kind and the name of the queue or exchange that a parameter names."""
    what, slash, name = (text or "").partition("/")
    if slash and kind is not None and what in _RESOURCES:
        return _RESOURCES[what], name or DEFAULT_EXCHANGE
    if text is None and kind is None:
        return "queue", ""
    raise bad_request("resource must be queue/NAME or exchange/NAME, with an operation")


def _read_tags(document: Mapping[str, Any]) -> tuple[str, ...]:
    if "tags" not in document:
        if "administrator" not in document:
            raise bad_request("tags_not_present")
        # The format of old RabbitMQ releases without tags.
        return ("administrator",) if read_flag(document, "administrator") else ()
    with bad_request_if(ValueError, reason=lambda text: f"tags {text}"):
        return read_tags(document["tags"])


def _read_limits(document: Mapping[str, Any], limits: UserLimits) -> UserLimits:
    """Update the limits of a user with those of a request."""
    wanted = document.get("limits", {})
    if not isinstance(wanted, Mapping):
        raise bad_request("limits must be an object")
    refusal = limits_error(wanted, USER_LIMITS, "user-limits")
    if refusal is not None:
        raise bad_request(refusal)
    limits.max_connections = wanted.get("max-connections", limits.max_connections)
    limits.max_channels = wanted.get("max-channels", limits.max_channels)
    return limits


def _read_password(document: Mapping[str, Any], rules: PasswordRules) -> tuple[str, str]:
    """Return the password hash of a request ("" for none) and its algorithm."""
    password, password_hash = document.get("password"), document.get("password_hash")
    if password is not None and not isinstance(password, str):
        raise bad_request(["not_string", "password"])
    if password is not None and password_hash is not None:
        raise bad_request("both_password_and_password_hash_are_provided")
    if "password_hash" in document and password is None and not isinstance(password_hash, str):
        raise bad_request(["not_base64", password_hash])
    algorithm = str(document.get("hashing_algorithm") or SHA256)
    try:
        return choose_hash(password, password_hash, algorithm, rules)
    except InvalidHash as invalid:
        raise bad_request(["not_base64", password_hash] if algorithm in ALGORITHMS else str(invalid)) from None
    except RefusedPassword as refused:
        raise bad_request(REFUSED_PASSWORD, str(refused)) from None


def _name(user: User) -> str:
    return user.name


_USERS: Final[View[User]] = View(describe=dump_user, order=_name, keys={"name": _name}, name=_name)


#: Paths of permissions. Only DELETE uses the exchange.
_KIND: Final = "{kind:permissions|topic-permissions}"
_ONE: Final = f"{_KIND}/{{vhost}}/{{user}}"
_ONE_EXCHANGE: Final = "{kind:topic-permissions}/{vhost}/{user}/{exchange}"


class Permissions(Controller):
    """The resources ``/api/permissions`` and ``/api/topic-permissions``, for administrators only."""

    @route("GET", _KIND, f"users/{{user}}/{_KIND}", f"vhosts/{{vhost}}/{_KIND}", tag="administrator")
    async def list(self, request: web.Request) -> web.Response:
        """List all permissions, those of a user, or those in a virtual host."""
        user, vhost = request.match_info.get("user"), request.match_info.get("vhost")
        if (user is not None and user not in self._accounts.users) or (
            vhost is not None and vhost not in self._broker.vhosts
        ):
            raise not_found()
        return await list_response(request, self._found(_is_topic(request), user, vhost), _PERMISSIONS)

    @route("GET", _ONE, _ONE_EXCHANGE, tag="administrator")
    async def show(self, request: web.Request) -> web.Response:
        """Show the permissions of a user in a virtual host; of topic permissions a list, one for each exchange."""
        found = self._found_one(request)
        if not found:
            raise not_found()
        if _is_topic(request):
            return await list_response(request, found, _PERMISSIONS)
        return object_response(request, found[0])

    @route("PUT", _ONE, _ONE_EXCHANGE, tag="administrator")
    async def put(self, request: web.Request) -> web.Response:
        """Set the permissions of a user in a virtual host. The body has the patterns.

        Those of topic permissions are of the routing keys on an exchange, which the body has, too.
        """
        is_topic, user, vhost = _is_topic(request), request.match_info["user"], request.match_info["vhost"]
        document = await read_object(request)
        if user not in self._accounts.users or vhost not in self._broker.vhosts:
            raise bad_request("vhost_or_user_not_found")
        keys = ("exchange" if is_topic else "configure", "write", "read")
        require_keys(document, *keys)
        values = [read_text(document, key) for key in keys]
        for pattern in values[1:] if is_topic else values:
            await compile_in_thread(pattern)
        existed = bool(self._found(is_topic, user, vhost))
        try:
            (self._accounts.set_topic_permissions if is_topic else self._accounts.set_permissions)(user, vhost, *values)
        except InvalidPattern as invalid:
            raise bad_request(invalid.as_json(invalid.source) if is_topic else invalid.as_json()) from None
        return web.Response(status=204 if existed else 201)

    @route("DELETE", _ONE, _ONE_EXCHANGE, tag="administrator")
    async def delete(self, request: web.Request) -> web.Response:
        """Clear the permissions of a user in a virtual host; topic permissions on one exchange or on all.

        Its connections stay open without permissions.
        """
        if not self._found_one(request):
            raise not_found()
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        if _is_topic(request):
            self._accounts.clear_topic_permissions(user, vhost, request.match_info.get("exchange"))
        else:
            self._accounts.clear_permissions(user, vhost)
        return web.Response(status=204)

    def _found_one(self, request: web.Request) -> Sequence[dict[str, Any]]:
        """Return the permissions of the user in the virtual host of the path."""
        return self._found(_is_topic(request), request.match_info["user"], request.match_info["vhost"])

    def _found(self, is_topic: bool, user: str | None, vhost: str | None) -> Sequence[dict[str, Any]]:
        accounts = self._accounts
        if is_topic:
            found = [dump_topic_permissions(*key, granted) for key, granted in accounts.all_topic_permissions.items()]
        elif user is None or vhost is None:
            found = [dump_permissions(*key, granted) for key, granted in accounts.all_permissions.items()]
        else:
            one = accounts.permissions(user, vhost)
            found = [] if one is None else [dump_permissions(user, vhost, one)]
        return [each for each in found if user in (None, each["user"]) and vhost in (None, each["vhost"])]


def _is_topic(request: web.Request) -> bool:
    return request.match_info["kind"] == "topic-permissions"


_PERMISSIONS: Final[View[dict[str, Any]]] = View(
    describe=dict, order=lambda entry: (entry["vhost"], entry["user"], entry.get("exchange", ""))
)
