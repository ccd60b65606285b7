"""Schemas of Avro bodies by their numbers, from a schema registry or a directory.

A body that a serializer of a registry has written begins with a zero and the number of its schema. The registry has it
at `/schemas/ids/NUMBER`, and the schemas of a subject at `/subjects/SUBJECT/versions/latest`. A directory has the same
as files, `NUMBER.avsc` and `SUBJECT.avsc`.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

from leveret.analytics.data_files import open_files
from leveret.analytics.errors import AnalyticsError
from leveret.storage.url_secrets import mask_text, mask_url

#: Seconds that a registry may take for an answer.
_ANSWER: Final = 5.0
#: Seconds for which a registry that does not answer is not asked, and for which it is not asked for what it lacks.
_PAUSE: Final = 30.0
#: Longest answer, in bytes.
_BYTES_MAX: Final = 4 << 20
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
        text: The schema.
        needs: Texts of those that it refers to, each after those that it needs itself.
    """

    text: str
    needs: Sequence[str] = ()


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
        self._known: dict[int, Schema] = {}
        #: What it did not have, or "" if it could not be asked: until when it is not asked again, and why.
        self._refused: dict[str, tuple[float, str]] = {}

    def schema(self, number: int) -> Schema:
        """Return a schema by its number.

        Raises:
            RegistryError: See there.
        """
        with self._lock:
            if number not in self._known:
                found = self._once(f"schema {number}", lambda: self._by_number(number))
                self._known[number] = found
            return self._known[number]

    def latest(self, subject: str) -> Schema:
        """Return the latest schema of a subject.

        Raises:
            RegistryError: See there.
        """
        with self._lock:
            return self._once(f"subject {subject}", lambda: self._by_subject(subject))

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

    def _by_number(self, number: int) -> Schema:
        if not self._is_url:
            return Schema(self._file(f"{number}.avsc", f"schema {number}"))
        return self._schema_of(self._ask(f"schemas/ids/{number}", f"schema {number}"), f"schema {number}")

    def _by_subject(self, subject: str) -> Schema:
        if not self._is_url:
            return Schema(self._file(f"{subject}.avsc", f"subject {subject}"))
        path = f"subjects/{quote(subject, safe='')}/versions/latest"
        return self._schema_of(self._ask(path, f"subject {subject}"), f"subject {subject}")

    # -- a directory --------------------------------------------------------------------------------------

    def _file(self, name: str, what: str) -> str:
        files, path = open_files(self._location)
        try:
            if files is not None:
                octets = files.read_all(f"{path}/{name}")
            else:
                with open(f"{path}/{name}", "rb") as file:
                    octets = file.read()
        except FileNotFoundError:
            octets = None
        except OSError as error:
            text = f"{self.shown}/{name} cannot be read: {error.strerror or error}"
            raise RegistryError(text, is_away=True) from None
        if octets is None:
            raise RegistryError(f"{what} is not in the directory {self.shown}: there is no {name}", is_away=False)
        try:
            return octets.decode()
        except UnicodeDecodeError:
            raise RegistryError(f"{self.shown}/{name} is not an Avro schema: it is not UTF-8", is_away=False) from None

    # -- HTTP ---------------------------------------------------------------------------------------------

    def _schema_of(self, answer: dict[str, Any], what: str) -> Schema:
        kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        if kind != "AVRO":
            raise RegistryError(f"{what} of the registry {self.shown} is {str(kind)[:50]}, not Avro", is_away=False)
        if not isinstance(text, str):
            raise self._nonsense(what)
        needs: dict[tuple[str, str], str] = {}
        self._collect(answer, what, needs)
        return Schema(text, tuple(needs.values()))

    def _collect(self, answer: dict[str, Any], what: str, needs: dict[tuple[str, str], str]) -> None:
        """Fetch what a schema refers to, and what that does, first."""
        for each in answer.get("references") or ():
            try:
                key = str(each["subject"]), str(int(each["version"]))
            except (TypeError, KeyError, ValueError):
                raise self._nonsense(what) from None
            if key in needs:
                continue
            if len(needs) >= _REFERENCES_MAX:
                text = f"{what} of the registry {self.shown} refers to more than {_REFERENCES_MAX} others"
                raise RegistryError(text, is_away=False)
            # Its place; no other one can ask for it again.
            needs[key] = ""
            inner = f"version {key[1]} of {key[0]}"
            found = self._ask(f"subjects/{quote(key[0], safe='')}/versions/{key[1]}", inner)
            if not isinstance(found.get("schema"), str):
                raise self._nonsense(inner)
            self._collect(found, inner, needs)
            del needs[key]
            needs[key] = found["schema"]

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        """Return the answer to a request, a JSON object."""
        status, octets = self._request(f"{self._location}/{path}")
        if status == 404:
            raise RegistryError(f"{what} is not in the registry {self.shown}; register it there", is_away=False)
        if status in (401, 403):
            text = f"the registry {self.shown} refuses access ({status}); give user and password in its URL"
            raise RegistryError(text, is_away=True)
        if status != 200:
            raise RegistryError(f"the registry {self.shown} has answered with {status}; look at its log", is_away=True)
        try:
            found = json.loads(octets)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._nonsense(what)
        return found

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


def _fetch(url: str) -> tuple[int, bytes]:
    # Imported late, since it takes a fifth of the time that a query needs to its first row.
    import urllib.error
    import urllib.request

    parts = urlsplit(url)
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_ANSWER) as answer:
            octets: bytes = answer.read(_BYTES_MAX + 1)
            if len(octets) > _BYTES_MAX:
                raise OSError(f"its answer has more than {_BYTES_MAX} bytes")
            return answer.status, octets
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""
