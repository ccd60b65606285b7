"""Rules that say what the bodies of queues are, and the file `bodies.json` in a data directory that has all of them.

A rule is a parameter of the component `bodies`, or is in a file: the option `bodies` of the broker, or one that a query
names. The broker writes those that it has to `bodies.json` when they change, and analytics read them there. It is a
JSON object with a checksum (`pack_checked()`). One that is damaged counts as none; the broker's next start replaces it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from leveret.storage.disk.files import Files, write_draft
from leveret.storage.format import is_text, pack_checked, unpack_checked
from leveret.storage.readers.reader_file import LIST_MAX, names_in
from leveret.storage.url_secrets import mask_url

NAME: Final = "bodies.json"
#: The component of its parameters.
COMPONENT: Final = "bodies"
FORMS: Final = ("json", "avro", "protobuf")
_FORMAT: Final = 1
#: Longest file that is read, and longest schema, in bytes.
_LIMIT: Final = 64 << 20
SCHEMA_MAX: Final = 1 << 20
#: A rule is also the end of a table's name.
_RULE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_KEYS: Final = ("queue", "format", "schema", "message", "registry", "subject")
#: Keys that a rule of a file has besides.
_KEYS_OF_FILES: Final = ("vhost", "schema_file")
_SUBJECT: Final = re.compile(r"[^/\x00-\x1f]{1,255}")


class InvalidRule(ValueError):
    """A rule is refused; the text has a line for each reason."""


@dataclass(frozen=True, slots=True)
class BodyRule:
    """What the bodies of some queues are.

    Attributes:
        name: Its name.
        queue: The queues: a name, a pattern with `*`, `?` and `[…]`, or a list of these as JSON.
        vhost: Their virtual host, or such a pattern or list; None for all.
        form: `json`, `avro` or `protobuf`.
        schema: Of JSON, a type in Spark's DDL or a JSON schema; of Avro, a schema; of Protobuf, a descriptor set in
            base64. Empty for that of `subject`.
        message: Of Protobuf, the full name of the message; empty for the first one of the schema of `subject`.
        registry: The URL or directory of the registry whose five bytes bodies begin with; empty for none.
        subject: The subject in the registry whose latest schema says the type.
    """

    name: str
    queue: str
    vhost: str | None
    form: str
    schema: str = ""
    message: str = ""
    registry: str = ""
    subject: str = ""


def is_rule_name(name: str) -> bool:
    """Return whether a rule can have a name: 1 to 63 of `a-z0-9_` that begin with a letter, and no format's."""
    return _RULE_NAME.fullmatch(name) is not None and name not in FORMS


def read_rule(
    name: str, value: Any, vhost: str | None = None, read_file: Callable[[str], bytes] | None = None
) -> BodyRule:
    """Return the rule that the value of a parameter, or an entry of a file, describes.

    Args:
        vhost: The virtual host of the parameter; None for a rule of a file, which may name one.
        read_file: Reads a file that a rule of a file names; raises OSError if it cannot. None for parameters: who sets
            them must not make others read files.
    Raises:
        InvalidRule: It is refused.
    """
    problems: list[str] = []
    if not is_rule_name(name):
        problems.append(
            f"'{name[:100]}' is not the name of a rule: it has 1 to 63 of the characters a-z, 0-9 and _, begins with a "
            f"letter, and is none of {', '.join(FORMS)}"
        )
    if not isinstance(value, Mapping):
        raise InvalidRule("\n".join([*problems, f"{name}: a rule is an object with the keys {', '.join(_KEYS)}"]))
    allowed = _KEYS if read_file is None else (*_KEYS, *_KEYS_OF_FILES)
    problems += [
        f"{name}: unknown key '{key}'; the keys are {', '.join(allowed)}" for key in value if key not in allowed
    ]
    reader = _Reader(name, value, problems)
    queue = reader.names("queue")
    if queue is None:
        problems.append(
            f"{name}: 'queue' is missing: the name of a queue, a pattern such as orders.*, or a list of these"
        )
    form = reader.text("format").lower()
    if form not in FORMS:
        problems.append(f"{name}: 'format' is one of {', '.join(FORMS)}, not '{form[:100]}'")
    schema = reader.schema(form, read_file)
    message, registry, subject = (reader.text(key) for key in ("message", "registry", "subject"))
    if not problems:
        problems += _problems_of(name, form, schema, message, has_registry=bool(registry))
        problems += _problems_of_registry(name, schema, registry, subject, may_be_directory=read_file is not None)
    host = reader.names("vhost") if read_file is not None else vhost
    if problems or queue is None:
        raise InvalidRule("\n".join(problems))
    return BodyRule(name, queue, host, form, schema, message, registry, subject)


class _Reader:
    """Reads the keys of a rule; adds what is wrong with them to a list."""

    def __init__(self, name: str, value: Mapping[str, Any], problems: list[str]) -> None:
        self._name = name
        self._value = value
        self._problems = problems

    def text(self, key: str) -> str:
        found = self._value.get(key, "")
        if not is_text(found):
            self._problems.append(f"{self._name}: '{key}' is a text, not {_shown(found)}")
            return ""
        return found

    def names(self, key: str) -> str | None:
        """Return a name, a pattern, or a list of these, as the options of tables have them."""
        found = self._value.get(key)
        if found is None:
            return None
        names = [found] if isinstance(found, str) else found
        if not isinstance(names, list) or not names or not all(is_text(each) and each for each in names):
            self._problems.append(
                f"{self._name}: '{key}' is a name, a pattern, or a list of these, not {_shown(found)}"
            )
            return None
        text = names[0] if len(names) == 1 else json.dumps(names, ensure_ascii=False)
        if len(text) > LIST_MAX:
            self._problems.append(f"{self._name}: '{key}' has more than {LIST_MAX} characters; use a pattern")
        return text if names_in(text) else None

    def schema(self, form: str, read_file: Callable[[str], bytes] | None) -> str:
        found = self._value.get("schema", "")
        path = self._value.get("schema_file") if read_file is not None else None
        if path is not None and read_file is not None:
            return self._from_file(form, path, read_file)
        if isinstance(found, Mapping | list):
            found = json.dumps(found)
        if not is_text(found):
            self._problems.append(f"{self._name}: 'schema' is a text or an object, not {_shown(found)}")
            return ""
        if len(found) > SCHEMA_MAX:
            self._problems.append(f"{self._name}: 'schema' has more than {SCHEMA_MAX} characters")
        return found

    def _from_file(self, form: str, path: Any, read_file: Callable[[str], bytes]) -> str:
        if not is_text(path) or "schema" in self._value:
            self._problems.append(f"{self._name}: 'schema_file' is the path of a file, in place of 'schema'")
            return ""
        try:
            octets = read_file(path)
            return base64.b64encode(octets).decode() if form == "protobuf" else octets.decode()
        except OSError as error:
            self._problems.append(f"{self._name}: schema_file {path} cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self._problems.append(f"{self._name}: schema_file {path} is not UTF-8")
        return ""


def _problems_of(name: str, form: str, schema: str, message: str, has_registry: bool) -> Iterable[str]:
    """Yield what is wrong with the schema of a rule."""
    if message and form != "protobuf":
        yield f"{name}: 'message' is for the format protobuf"
    if form == "protobuf":
        if not message if schema else not has_registry:
            yield (
                f"{name}: the format protobuf needs 'schema', in base64 what protoc --include_imports "
                "--descriptor_set_out has written, and 'message', its full name; or 'registry' and 'subject'"
            )
        elif schema and not _is_base64(schema):
            yield f"{name}: 'schema' is not base64: write base64 -w0 FILE of the descriptor set"
    elif not schema:
        if not has_registry:
            what = "columns such as 'id bigint, tag string', or a JSON schema; or" if form == "json" else "or"
            yield f"{name}: the format {form} needs 'schema', {what} 'registry' and 'subject'"
    elif form == "json":
        if schema.lstrip().startswith("{") and not _is_json(schema, dict):
            yield f"{name}: 'schema' is not a JSON schema: it is no JSON object"
    elif not _is_json(schema, dict, list):
        yield f"{name}: 'schema' is not an Avro schema: it is no JSON object or list"


def _problems_of_registry(name: str, schema: str, registry: str, subject: str, may_be_directory: bool) -> Iterable[str]:
    if not registry:
        if subject:
            yield f"{name}: 'subject' needs 'registry', the URL of the schema registry"
        return
    if not schema and not subject:
        yield f"{name}: a registry needs 'subject', whose latest schema says the type, or 'schema'"
    if subject and not _SUBJECT.fullmatch(subject):
        yield f"{name}: 'subject' has 1 to 255 characters without a slash"
    is_url = registry.startswith(("http://", "https://"))
    if is_url and not _host_of(registry):
        yield f"{name}: 'registry' has no host"
    if not is_url and not may_be_directory:
        yield f"{name}: 'registry' is the URL of a schema registry, http://… or https://…"
    if mask_url(registry) != registry or (is_url and "@" in urlsplit(registry).netloc):
        # Rules are in a file that all readers of the data directory read, and in definitions.
        yield f"{name}: 'registry' has a login; write that for its host in the file ~/.netrc of those who read bodies"


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
        return parts.hostname or ""
    except ValueError:
        return ""


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_json(text: str, *kinds: type) -> bool:
    try:
        return isinstance(json.loads(text), kinds)
    except (ValueError, RecursionError):
        return False


def _shown(value: Any) -> str:
    return json.dumps(value)[:100]


# -- the file in a data directory ------------------------------------------------------------------------------------


def pack_rules(rules: Iterable[BodyRule]) -> bytes:
    """Return the contents of the file."""
    return pack_checked({"format": _FORMAT, "rules": [asdict(each) for each in rules]})


def unpack_rules(octets: bytes) -> list[BodyRule] | None:
    """Return the rules in a file; None if it is damaged, or a newer version has written it."""
    try:
        fields = unpack_checked(octets)
        return [BodyRule(**each) for each in fields["rules"]] if fields["format"] <= _FORMAT else None
    except (ValueError, KeyError, TypeError):
        return None


def write_rules(files: Files, path: str, rules: list[BodyRule]) -> None:
    """Write the file of a data directory, if it does not have the same rules. It is not synced: a start writes it anew.

    Raises:
        OSError: It could not be written; an older file is unchanged.
    """
    if rules != (read_rules(files, path) or []):
        draft = f"{path}/{NAME}.tmp"
        write_draft(files, draft, pack_rules(rules), sync=False)
        files.rename(draft, f"{path}/{NAME}")


def read_rules(files: Files, path: str) -> list[BodyRule] | None:
    """Return the rules of a data directory; None if it has no file that can be read."""
    try:
        octets = files.read_foreign(f"{path}/{NAME}", _LIMIT)
    except OSError:
        return None
    return None if octets is None else unpack_rules(octets)
