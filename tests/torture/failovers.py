"""Several nodes and etcd under load: leaders are ended, cut off and replaced, and what was confirmed is compared.

python -m tests.torture --nodes 3 --seconds 600 --seed 7
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from tests.support.cluster import Node
from tests.torture.cluster_faults import Faults, TorturedCluster
from tests.torture.flows import Flow, make_flows
from tests.torture.preloaded_disk import NoCompilerError, build

#: Seconds between comparisons, and those until everything that was confirmed has to be consumed.
_ROUND: Final = 240.0
_PATIENCE: Final = 180.0
_LEADS: Final = re.compile(r"^(\S+ \S+).* leads epoch (\d+) from", re.MULTILINE)
#: uvloop and aiohttp make one of an answer to a connection that has just been closed.
_TRACEBACK: Final = re.compile(r"leveret(?!.http.protocol)[.\w]*: .*\n +Traceback")


def leaders(nodes: Iterable[Node]) -> dict[int, list[str]]:
    """Return who led each epoch, by the logs."""
    found: dict[int, list[str]] = {}
    for node in nodes:
        for _, epoch in _LEADS.findall(node.log.read_text()):
            found.setdefault(int(epoch), []).append(node.name)
    return found


def changes(led: dict[int, list[str]]) -> int:
    """Return how often another node than the one before began to lead."""
    order = [names[0] for _, names in sorted(led.items())]
    return sum(one != other for one, other in pairwise(order))


def confirmed_by(flows: Iterable[Flow]) -> int:
    """Return how many messages were confirmed."""
    return sum(len(flow.confirmed) for flow in flows)


class Ledger:
    """What the clients and the faults have found."""

    def __init__(self, cluster: TorturedCluster, flows: Sequence[Flow], faults: Faults) -> None:
        self._cluster = cluster
        self._flows = flows
        self._faults = faults
        self._begun = time.monotonic()

    def compare(self) -> list[str]:
        """Wait until everything that was confirmed is consumed; return what is wrong."""
        for flow in self._flows:
            flow.pause()
        self._faults.recover()
        deadline = time.monotonic() + _PATIENCE
        while any(flow.missing for flow in self._flows) and time.monotonic() < deadline:
            time.sleep(0.2)
        wrong = [f"{flow.name}: {each}" for flow in self._flows for each in flow.check()]
        wrong += self._faults.wrong
        wrong += [
            f"epoch {epoch} was led by {names}"
            for epoch, names in leaders(self._cluster.nodes).items()
            if len({*names}) > 1
        ]
        wrong += [
            f"there is a traceback in {node.log}"
            for node in self._cluster.nodes
            if _TRACEBACK.search(node.log.read_text())
        ]
        return wrong

    def print(self) -> None:
        """Print the counts until now."""
        led, faults = leaders(self._cluster.nodes), self._faults
        confirmed = confirmed_by(self._flows)
        twice = sum((flow.twice for flow in self._flows), Counter[str]())
        seconds = time.monotonic() - self._begun
        print(
            f"{seconds:.0f} s: {confirmed} confirmed, {changes(led)} changes of the leader, {max(led, default=0)}"
            f" epochs, {sum(faults.counts.values())} faults",
            flush=True,
        )
        print(
            f"  faults: {dict(faults.counts.most_common())};"
            f" {self._cluster.proxy.damages} damaged, {faults.refused_writes} writes and syncs failed",
            flush=True,
        )
        print(f"  twice: {dict(twice.most_common()) or 'none'}", flush=True)

    def print_flows(self) -> None:
        """Print what each flow has found."""
        for flow in self._flows:
            found = "; ".join(flow.check()) or "lost 0, changed 0, reordered 0"
            print(
                f"  {flow.name}: {len(flow.confirmed)} confirmed, {found}; twice: {dict(flow.twice) or 'none'};"
                f" longest wait {flow.longest_wait:.1f} s"
            )
        for what, times in sorted(self._faults.takeovers.items()):
            print(f"  {what}: {len(times)} times, next leader after {median(times):.2f} s, longest {max(times):.2f} s")


def run(seconds: float, seed: int, count: int, keep: Path) -> int:
    """Run a cluster under load for a time; return 1 if a promise was broken."""
    directory = Path(tempfile.mkdtemp(prefix="leveret-failovers-")).resolve()
    try:
        library: Path | None = build(directory)
    except NoCompilerError as error:
        print(f"{error}: no loss of power, no full disks, no clock steps")
        library = None
    wrong: list[str] = []
    cluster = TorturedCluster(directory, count, library)
    with cluster:
        cluster.start()
        flows = make_flows(cluster.nodes, seed)
        faults = Faults(cluster, seed, lambda: confirmed_by(flows))
        ledger = Ledger(cluster, flows, faults)
        for flow in flows:
            flow.start()
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline and not wrong:
                until = min(deadline, time.monotonic() + _ROUND)
                while time.monotonic() < until:
                    faults.cause()
                faults.set_clocks_right()
                wrong = ledger.compare()
                ledger.print()
                for flow in flows:
                    flow.go_on()
        except AssertionError as error:
            wrong.append(f"{faults.last}: {error}")
        for flow in flows:
            flow.end()
        ledger.print_flows()
        if wrong:
            ledger.print()
            kept = keep / f"nodes-seed-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            for node in cluster.nodes:
                node.kill()
            shutil.copytree(directory, kept)
    shutil.rmtree(directory)
    for each in wrong:
        print(f"BROKEN: {each}")
    if wrong:
        print(f"see {keep / f'nodes-seed-{seed}'}")
    return int(bool(wrong))
