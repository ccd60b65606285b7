"""Schemas by their numbers, from a schema registry or a directory.

A body that a serializer of a registry has written begins with a zero and the number of its schema. The registry has it
at `/schemas/ids/NUMBER`, and the schemas of a subject at `/subjects/SUBJECT/versions/latest`. A directory has the same
as files: `NUMBER.avsc` and `SUBJECT.avsc` of Avro, `.json` of JSON Schema, and `.desc` of Protobuf, as protoc writes
them. A registry compiles Protobuf itself when it is asked for the format "serialized": no compiler is needed here.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import netrc
import os
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from leveret.analytics.data_files import contents_of
from leveret.analytics.errors import AnalyticsError
from leveret.storage.url_secrets import mask_text, mask_url

#: Seconds that a registry may take for an answer.
_ANSWER: Final = 5.0
#: Seconds for which a registry that does not answer is not asked, and for which it is not asked for what it lacks.
_PAUSE: Final = 30.0
#: Longest answer, in bytes.
_BYTES_MAX: Final = 4 << 20
#: The answer of a registry that cannot compile a schema.
_NOT_IMPLEMENTED: Final = 501
#: What the file of a schema is called among those that it imports.
_MAIN: Final = "leveret/schema.proto"
#: So many schemas that a schema refers to are fetched at most.
_REFERENCES_MAX: Final = 100
_Found = TypeVar("_Found")


class RegistryError(AnalyticsError):
    """A registry does not have a schema, or cannot be asked; the text says which and what to do.

    Attributes:
        is_away: Whether it could not be asked: later it may have the schema.
    """

    def __init__(self, text: str, is_away: bool) -> None:
        super().__init__(text)
        self.is_away = is_away


class Schema(NamedTuple):
    """A schema.

    Attributes:
        content: Its text; of Protobuf, a descriptor set whose last file it is.
        needs: Name and text of those that it refers to, each after those that it needs itself; of Protobuf, these are
            in the descriptor set.
    """

    content: str | bytes
    needs: Sequence[tuple[str, str]] = ()


class _Form(NamedTuple):
    """A kind of schemas.

    Attributes:
        title: What registries call it.
        shown: What people call it.
        suffix: The end of files' names.
        query: What a registry is asked for besides.
    """

    title: str
    shown: str
    suffix: str
    query: str = ""


_FORMS: Final = {
    "avro": _Form("AVRO", "Avro", "avsc"),
    "json": _Form("JSON", "JSON Schema", "json"),
    "protobuf": _Form("PROTOBUF", "Protobuf", "desc", "?format=serialized"),
}


@cache
def registry_at(location: str) -> SchemaRegistry:
    """Return the registry at a URL or in a directory: one in a process, so that nothing is asked twice."""
    return SchemaRegistry(location)


class SchemaRegistry:
    """A registry; any thread may ask.

    Args:
        location: Its URL, `http://…` or `https://…`; or the path or URI of a directory.
        clock: Returns the time in seconds since any moment.
    """

    def __init__(self, location: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown = mask_url(location)
        self._location = location.rstrip("/")
        self._is_url = location.startswith(("http://", "https://"))
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str], Schema] = {}
        #: What it did not have, or "" if it could not be asked: until when it is not asked again, and why.
        self._refused: dict[str, tuple[float, str]] = {}

    def schema(self, number: int, form: str) -> Schema:
        """Return a schema by its number.

        Args:
            form: `avro`, `json` or `protobuf`.
        Raises:
            RegistryError: See there.
        """
        what = f"schema {number}"
        with self._lock:
            key = number, form
            if key not in self._known:
                self._known[key] = self._once(
                    what, lambda: self._found(f"schemas/ids/{number}", str(number), what, form)
                )
            return self._known[key]

    def latest(self, subject: str, form: str) -> Schema:
        """Return the latest schema of a subject.

        Args:
            form: `avro`, `json` or `protobuf`.
        Raises:
            RegistryError: See there.
        """
        what, path = f"subject {subject}", f"{_path_of(subject)}/latest"
        with self._lock:
            return self._once(what, lambda: self._found(path, subject, what, form))

    def _once(self, what: str, find: Callable[[], _Found]) -> _Found:
        """Return what is found; do not ask again for a time if it is not."""
        for key in ("", what):
            until, reason = self._refused.get(key, (0.0, ""))
            if reason and self._clock() < until:
                raise RegistryError(reason, is_away=not key)
        try:
            return find()
        except RegistryError as error:
            self._refused["" if error.is_away else what] = self._clock() + _PAUSE, str(error)
            raise

    def _found(self, path: str, name: str, what: str, form: str) -> Schema:
        """Return a schema.

        Args:
            path: Where a registry has it.
            name: The name of its file in a directory, without the suffix.
        """
        kind = _FORMS[form]
        if not self._is_url:
            return Schema(self._file(f"{name}.{kind.suffix}", what, kind))
        needs: dict[tuple[str, str, str], str] = {}
        text = self._text(path, what, kind, needs)
        named = [(key[0], each) for key, each in needs.items()]
        if not kind.query:
            return Schema(text, named)
        try:
            return Schema(_descriptor_set([*named, (_MAIN, text)]))
        except ValueError:
            raise self._not_compiled(what) from None

    # -- a directory --------------------------------------------------------------------------------------

    def _file(self, name: str, what: str, kind: _Form) -> str | bytes:
        try:
            octets = contents_of(f"{self._location}/{name}")
            return octets if kind.query else octets.decode()
        except FileNotFoundError:
            text = f"{what} is not in the directory {self.shown}: there is no {name}"
            raise RegistryError(text, is_away=False) from None
        except OSError as error:
            text = f"{self.shown}/{name} cannot be read: {error.strerror or error}"
            raise RegistryError(text, is_away=True) from None
        except UnicodeDecodeError:
            raise RegistryError(f"{self.shown}/{name} is not {kind.shown}: it is not UTF-8", is_away=False) from None

    # -- HTTP ---------------------------------------------------------------------------------------------

    def _text(self, path: str, what: str, kind: _Form, needs: dict[tuple[str, str, str], str]) -> str:
        """Return the text of a schema, and add those that it refers to, each after those that it needs itself."""
        if kind.query and not path.startswith("schemas/"):
            # Not all registries compile what they are asked for by its subject.
            path = f"schemas/ids/{self._ask(path, what).get('id')}"
        answer = self._ask(f"{path}{kind.query}", what)
        title, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        if title != kind.title:
            raise RegistryError(
                f"{what} of the registry {self.shown} is {str(title)[:50]}, not {kind.shown}", is_away=False
            )
        if not isinstance(text, str):
            raise self._nonsense(what)
        for each in answer.get("references") or ():
            try:
                key = str(each["name"]), str(each["subject"]), str(int(each["version"]))
            except (TypeError, KeyError, ValueError):
                raise self._nonsense(what) from None
            if key in needs:
                continue
            if len(needs) >= _REFERENCES_MAX:
                said = f"{what} of the registry {self.shown} refers to more than {_REFERENCES_MAX} others"
                raise RegistryError(said, is_away=False)
            # Its place; no other one can ask for it again.
            needs[key] = ""
            found = self._text(f"{_path_of(key[1])}/{key[2]}", f"version {key[2]} of {key[1]}", kind, needs)
            del needs[key]
            needs[key] = found
        return text

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        """Return the answer to a request, a JSON object."""
        status, octets = self._request(f"{self._location}/{path}")
        if status == 404:
            raise RegistryError(f"{what} is not in the registry {self.shown}; register it there", is_away=False)
        if status in (401, 403):
            text = f"the registry {self.shown} refuses access ({status}); write user and password for its host in"
            raise RegistryError(f"{text} {_netrc_path()}", is_away=True)
        if status == _NOT_IMPLEMENTED:
            raise self._not_compiled(what)
        if status != 200:
            raise RegistryError(f"the registry {self.shown} has answered with {status}; look at its log", is_away=True)
        try:
            found = json.loads(octets)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._nonsense(what)
        return found

    def _not_compiled(self, what: str) -> RegistryError:
        return RegistryError(
            f"{what} is not compiled by the registry {self.shown}, which does not know format=serialized; use one that "
            "does, or a directory with descriptor sets",
            is_away=False,
        )

    def _nonsense(self, what: str) -> RegistryError:
        return RegistryError(
            f"{self.shown} does not answer as a schema registry when asked for {what}; check its URL", is_away=True
        )

    def _request(self, url: str) -> tuple[int, bytes]:
        """Return status and body of an answer.

        An answer that comes byte by byte is never too late for a socket, so another thread reads it.
        """
        answers: list[tuple[int, bytes] | Exception] = []

        def fetch() -> None:
            try:
                answers.append(_fetch(url))
            except Exception as error:  # noqa: BLE001  It is told below.
                answers.append(error)

        thread = threading.Thread(target=fetch, name="leveret-registry", daemon=True)
        thread.start()
        thread.join(_ANSWER)
        found = answers[0] if answers else TimeoutError(f"no answer in {_ANSWER:g} s")
        if isinstance(found, Exception):
            reason = getattr(found, "reason", None) or found
            said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            text = f"the registry {self.shown} cannot be reached: {mask_text(str(said), self._location)}"
            raise RegistryError(f"{text}; start it, or correct its URL", is_away=True)
        return found


def _path_of(subject: str) -> str:
    return f"subjects/{quote(subject, safe='')}/versions"


def _descriptor_set(files: Iterable[tuple[str, str]]) -> bytes:
    """Return a FileDescriptorSet of files, each with the name by which others import it, and itself in base64.

    They are put together without Protobuf's library, by its encoding: what comes last for a field holds.

    Raises:
        ValueError: One is not base64.
    """
    return b"".join(_first_field(b64decode(text, validate=True) + _first_field(name.encode())) for name, text in files)


def _first_field(octets: bytes) -> bytes:
    size, length = len(octets), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return b"\x0a" + length + bytes([size]) + octets


def _netrc_path() -> str:
    return os.environ.get("NETRC") or os.path.expanduser("~/.netrc")


def _login_for(host: str) -> str | None:
    """Return user and password for a registry, with a colon in between, from the file that curl and others read, too.

    Raises:
        OSError: It cannot be read.
    """
    path = _netrc_path()
    if not os.path.exists(path):
        return None
    try:
        found = netrc.netrc(path).hosts.get(host)
    except netrc.NetrcParseError as error:
        # Its text may have a password.
        raise OSError(f"{path} is not a netrc file: line {error.lineno} is wrong") from None
    return None if found is None else f"{found[0]}:{found[2]}"


def _fetch(url: str) -> tuple[int, bytes]:
    # Imported late, since it takes a fifth of the time that a query needs to its first row.
    import urllib.error
    import urllib.request

    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    login = _login_for(urlsplit(url).hostname or "")
    request = urllib.request.Request(url, headers=headers)
    if login is not None:
        # It is not sent on to where the registry may redirect to.
        request.add_unredirected_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER) as answer:
            octets: bytes = answer.read(_BYTES_MAX + 1)
            if len(octets) > _BYTES_MAX:
                raise OSError(f"its answer has more than {_BYTES_MAX} bytes")
            return answer.status, octets
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""
