"""Saves benchmark results and compares them with earlier ones.

Each run leaves a JSON file in a directory. Two files are compared by the CPU time of the broker, messages per second,
latency and memory, all of which depend on the machine: compare only files of the same machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
#: Where results are kept by default; git ignores it.
DIRECTORY: Final = ROOT / "bench-results"
_KEYS: Final = ("server_cpu_us", "messages_per_second", "p99_ms", "peak_rss_mib")
_TITLES: Final = ("CPU µs/msg", "messages/s", "p99 ms", "peak MiB")


def save(document: Mapping[str, Any], directory: Path, now: datetime | None = None) -> Path:
    """Write results into a file of their own."""
    directory.mkdir(parents=True, exist_ok=True)
    time = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S%fZ")
    path = directory / f"{time}-{document['commit'] or 'unknown'}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return path


def latest(directory: Path, names: Collection[str]) -> Mapping[str, Any] | None:
    """Return the newest results in a directory that have one of these scenarios; None if there are none."""
    for path in sorted(directory.glob("*.json"), key=lambda path: path.name, reverse=True):
        found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        if any(each["name"] in names for each in found["scenarios"]):
            return found
    return None


def commit() -> str | None:
    """Return the short name of the current commit, with `+` if files have changed since; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a table of Leveret's figures in two results, with the ratio of the second to the first."""
    earlier = {each["name"]: _figures(each) for each in before["scenarios"]}
    lines = [["scenario", *(f"{title} ({part})" for title in _TITLES for part in ("before", "after", "ratio"))]]
    for each in after["scenarios"]:
        old, new = earlier.get(each["name"]), _figures(each)
        if old is not None and new is not None:
            lines.append([each["name"], *(cell for key in _KEYS for cell in _cells(old[key], new[key]))])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    head = f"before: {_origin(before)}\nafter:  {_origin(after)}\n"
    return head + "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
    )


def is_leveret(broker: str) -> bool:
    """Return whether the name of a broker in results is Leveret's, with any version."""
    return broker.startswith("Leveret")


def _figures(scenario: Mapping[str, Any]) -> Mapping[str, float | None] | None:
    """Leveret's medians; None if it was not measured."""
    return next((each["median"] for name, each in scenario["brokers"].items() if is_leveret(name)), None)


def _cells(before: float | None, after: float | None) -> tuple[str, str, str]:
    ratio = "–" if before is None or after is None or not before else f"{after / before:.2f}"
    return _cell(before), _cell(after), ratio


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}" if value < 1_000 else f"{value:,.0f}"


def _origin(document: Mapping[str, Any]) -> str:
    machine = document["machine"]
    # Older files do not say whether Leveret was compiled.
    form = f", {document['form']}" if "form" in document else ""
    revision = document["commit"] or "unknown commit"
    return f"{revision}{form}, {document['time']}, {machine['cpus']} cpus, {machine['system']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two files of results."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.history", description="Compare two benchmark results.")
    parser.add_argument("before", type=Path, help="JSON file of the earlier run")
    parser.add_argument("after", type=Path, help="JSON file of the later run")
    options = parser.parse_args(argv)
    try:
        print(compare(*(json.loads(path.read_text("utf-8")) for path in (options.before, options.after))))
    except (OSError, ValueError, KeyError) as error:
        print(f"bench: not a file of results: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
