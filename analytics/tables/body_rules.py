"""Finds the rule for bodies that a query names: in a file, in data directories, or in an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from leveret.analytics.archive.layout import Sources
from leveret.analytics.data_files import contents_of, open_files
from leveret.analytics.errors import OptionError
from leveret.analytics.options import Options
from leveret.storage.readers.body_rules import BodyRule, InvalidRule, read_rule, read_rules

#: Directory of an archive in which each data directory has a file with its rules.
RULES: Final = "bodies"


def with_rule(options: Options, sources: Sources | None) -> Options:
    """Return options in which the rule that they name is looked up: how bodies are read, and of which queues.

    Args:
        sources: The archive that is read, and data directories with it; None for a data directory alone.
    Raises:
        OptionError: There is no such rule, or the file of rules cannot be read.
    """
    bodies = options.bodies
    if bodies is None or not bodies.named:
        return options
    rule = _named(bodies.named, bodies.rules_file, (options.path,) if sources is None else sources.live, sources)
    # That of JSON is a type, which other bodies find in the rule.
    known = replace(bodies, form=rule.form, schema=rule.schema, message=rule.message, rule=rule, named="")
    if options.table != "messages":
        return replace(options, bodies=known)
    vhost = rule.vhost if options.vhost is None else options.vhost
    if options.queue is not None:
        return replace(options, bodies=known, vhost=vhost)
    return replace(options, bodies=known, vhost=vhost, queue=rule.queue, queues_of_rule=True)


def _named(name: str, rules_file: str, live: Sequence[str], sources: Sources | None) -> BodyRule:
    if rules_file:
        there, where = rules_in(rules_file), rules_file
    else:
        there = [rule for each in live for rule in rules_of(each)]
        where = " and ".join(live)
        if not live and sources is not None:
            there, where = _rules_of_archive(sources.archive), sources.archive
    found = list(dict.fromkeys(rule for rule in there if rule.name == name))
    if not found:
        known = ", ".join(sorted({rule.name for rule in there})) or "none"
        raise OptionError(f"there is no rule '{name}' for bodies in {where}; its rules are: {known}")
    if len(found) > 1:
        raise OptionError(f"{where} have different rules '{name}' for bodies; name a file of rules with bodyRules")
    return found[0]


def rules_of(data_dir: str) -> list[BodyRule]:
    """Return the rules of a data directory."""
    return read_rules(*open_files(data_dir)) or []


def _rules_of_archive(archive: str) -> list[BodyRule]:
    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles
    from leveret.storage.readers.body_rules import unpack_rules

    files = ArchiveFiles(archive)
    found = [files.read(f"{RULES}/{name}") or b"" for name in files.names(RULES)]
    return [rule for octets in found for rule in unpack_rules(octets) or ()]


def rules_in(location: str) -> list[BodyRule]:
    """Return the rules in a file, a mapping by their names.

    Args:
        location: Path or URI of the file, YAML or JSON.
    Raises:
        OptionError: It cannot be read, or a rule is refused.
    """
    # Workers, which do not read it, may lack the library.
    import yaml

    try:
        document = yaml.safe_load(contents_of(location))
        if not isinstance(document, Mapping) or not all(isinstance(name, str) for name in document):
            raise OptionError(f"bodyRules {location} has no rules: write them as a mapping, each by its name")
        return [read_rule(name, value, read_file=contents_of) for name, value in document.items()]
    except OSError as error:
        raise OptionError(f"bodyRules {location} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise OptionError(f"bodyRules {location} is not YAML: {' '.join(str(error).split())}") from error
    except InvalidRule as error:
        raise OptionError(f"bodyRules {location}: {'; '.join(str(error).splitlines())}") from error
