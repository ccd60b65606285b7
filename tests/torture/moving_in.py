"""Moves queues of all kinds from another broker, such as RabbitMQ, while clients use both and everything is killed.

python -m tests.torture.moving_in --url URL --management URL --restart 'COMMAND' --messages 500000

The command kills the other broker and starts it again, and ends when that is ready. A virtual host is filled there;
`leveretctl migrate` brings it over, while clients publish there and consume here and there. Meanwhile Leveret, the
other broker, connections and the command are killed. Then the producers move, and the command cuts over. In the end
each message that was confirmed must have been consumed: unchanged, in order, and twice only for a reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from leveret.broker.leveretctl.command_line import URL_VARIABLE
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection
from tests.torture.moving_lines import GONE, KINDS, Client, Consumer, Line, Producer, connect

_ROOT: Final = Path(__file__).parents[2]
_VHOST: Final = "moving"
#: Share of the messages of a queue that is there before anything moves, that is published meanwhile there, and in the
#: end here.
_SHARES: Final = (0.85, 0.1, 0.05)
_BATCH: Final = 500
#: Seconds in which everything has to have come, at least and for each message.
_PATIENCE: Final = (300.0, 0.01)
_PRODUCERS: Final = 2
_CONSUMERS: Final = 3


class Move:
    """A move from another broker to a Leveret.

    Args:
        url: AMQP URL of the other broker.
        management: URL of its HTTP API.
        restart: Kills it, and starts it again.
        directory: Where the Leveret works.
        sets: How many queues of each kind there are.
        messages: How many messages in all.
        seed: Of what is decided by lot.
    """

    def __init__(
        self,
        url: str,
        management: str,
        restart: Callable[[], object],
        directory: Path,
        sets: int,
        messages: int,
        seed: int,
    ) -> None:
        self._url, self._management = url.rstrip("/"), management
        self._restart = restart
        self._directory = directory
        self._random = random.Random(seed)
        self._last_kill = "nothing"
        self.kills: Counter[str] = Counter()
        #: How the command has ended, by its last line.
        self.ends: Counter[str] = Counter()
        each = max(10, messages // (sets * len(KINDS)))
        self._counts = [max(1, int(each * share)) for share in _SHARES]
        self.lines = [
            Line(kind, number, self._counts[0], lambda: self._last_kill) for number in range(sets) for kind in KINDS
        ]
        self.wrong: list[str] = []
        self.report: list[dict[str, Any]] = []
        self._command: subprocess.Popen[str] | None = None

    def run(self, kills: int, pause: float) -> None:
        """Fill the queues, and move them.

        Args:
            kills: How often each of the four is killed.
            pause: Seconds between kills.
        """
        self._fill()
        there = f"{self._url}/{_VHOST}"
        with LeveretProcess(self._directory) as leveret:
            self._leveret = leveret
            here = f"{leveret.url}/{_VHOST}"
            consumed_there = [line for line in self.lines if line.is_consumed_there]
            consumers_there = [Consumer(there, consumed_there, is_there=True)]
            producers = [Producer(there, self.lines[at::_PRODUCERS], self._counts[1]) for at in range(_PRODUCERS)]
            self._start_command()
            queues = [line for line in self.lines if line.kind != "stream"]
            consumers = [Consumer(here, queues[at::_CONSUMERS]) for at in range(_CONSUMERS)]
            self._wait(lambda: self._is_declared(leveret), "the definitions come over")
            for client in (*consumers_there, *producers, *consumers):
                client.start()
            targets = ["Leveret", "the other broker", "connections there", "the command"] * kills
            self._random.shuffle(targets)
            for number, target in enumerate(targets):
                self._keep_command(pause)
                self._kill(target)
                if number == len(targets) // 2:
                    self._collect(consumers_there)
            self._collect(consumers_there)
            self._wait(lambda: not any(client.is_running for client in producers), "producers there are done")
            self._finish_command()
            self._collect(producers)
            producers = [Producer(here, self.lines, self._counts[2])]
            producers[0].start()
            self._start_command("--cut-over")
            self._finish_command("--cut-over")
            self._wait(lambda: not producers[0].is_running, "producers here are done")
            streams = [line for line in self.lines if line.kind == "stream"]
            readers = [Consumer(here, streams, arguments={"x-stream-offset": "first"})]
            readers[0].start()
            least, most = _PATIENCE
            deadline = time.monotonic() + least + most * sum(len(line.accepted) for line in self.lines)
            while self._is_missing() and time.monotonic() < deadline:
                time.sleep(0.2)
            # What comes twice comes now.
            time.sleep(2)
            self._collect([*producers, *consumers, *readers])
            self.wrong += [f"{line.name}: {each}" for line in self.lines for each in line.check()]
            if "Traceback" in leveret.log_text():
                self.wrong.append(f"there is a traceback in {leveret.log}")

    # -- what is there before it begins ----------------------------------------------------------------------------

    def _fill(self) -> None:
        """Make the virtual host at the other broker, with its queues and most of their messages."""
        api = Management(self._management)
        with suppress(OSError):
            api.request("DELETE", "vhosts", _VHOST)
        api.request("PUT", "vhosts", _VHOST, body={})
        user = urlsplit(self._url).username or "guest"
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        api.request("PUT", "permissions", _VHOST, user, body=every)
        connection = connect(f"{self._url}/{_VHOST}")
        for line in self.lines:
            line.declare(connection.channel())
        connection.close()
        with Connection(f"{self._url}/{_VHOST}", timeout=120) as wire:
            for line in self.lines:
                for begin in range(0, self._counts[0], _BATCH):
                    channel = wire.channel()
                    channel.confirm_select()
                    numbers = [line.take_number() for _ in range(min(_BATCH, self._counts[0] - begin))]
                    for number in numbers:
                        properties = b"".join(line.properties(number).encode())
                        channel.publish("", line.name, line.body(number), properties)
                    answers = channel.wait_for_confirms(len(numbers))
                    line.accepted.update(number for number, ack in zip(numbers, answers, strict=True) if ack)
                    channel.close()
                if line.kind == "chain":
                    self._let_die(wire, line)

    def _let_die(self, wire: Connection, line: Line) -> None:
        """Let two thirds of the messages of a chain pass its first queue, and one third the second."""
        each = self._counts[0] // 3
        for name, count in ((line.queues[0], 2 * each), (line.queues[1], each)):
            channel = wire.channel()
            while channel.queue_declare(name, passive=True).message_count < count:
                time.sleep(0.1)
            for _ in range(count):
                got = channel.get(name)
                assert got is not None
                channel.nack(got.delivery_tag, requeue=False)
            channel.close()
        channel = wire.channel()
        while channel.queue_declare(line.queues[2], passive=True).message_count < each:
            time.sleep(0.1)
        channel.close()

    # -- the command -----------------------------------------------------------------------------------------------

    def _start_command(self, *options: str) -> None:
        place = ("--from", self._url, "--from-http", self._management, "--vhost", _VHOST)
        self._command = subprocess.Popen(
            [sys.executable, "-m", "leveret.broker.leveretctl", "migrate", *place, "--formatter", "json", *options],
            env=os.environ | {URL_VARIABLE: self._leveret.http_url},
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _keep_command(self, seconds: float) -> None:
        """Let time pass; a command that has ended is run again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self._command is not None
            if self._command.poll() is not None:
                self._note_end(self._command)
                self._start_command()
            time.sleep(0.1)

    def _note_end(self, command: subprocess.Popen[str]) -> str:
        out, error = command.communicate()
        lines = error.split("\r")[-1].split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        self.ends[f"{command.returncode} {last}".strip()] += 1
        if "Traceback" in error:
            self.wrong.append(f"the command ends in a traceback: {error}")
        elif command.returncode not in (0, 1, 69, -signal.SIGKILL):
            self.wrong.append(f"the command ends with {command.returncode}: {error}")
        return out

    def _finish_command(self, *options: str) -> None:
        """Run the command until all queues are empty."""
        least, most = _PATIENCE
        deadline = time.monotonic() + least + most * sum(len(line.accepted) for line in self.lines)
        while time.monotonic() < deadline:
            assert self._command is not None
            with suppress(subprocess.TimeoutExpired):
                self._command.wait(min(120.0, max(1.0, deadline - time.monotonic())))
                status = self._command.returncode
                out = self._note_end(self._command)
                if status in (0, 1) and options:
                    self.report = json.loads(out)
                if status == 0:
                    return
                self._start_command(*options)
        self.wrong.append(f"the command does not end: migrate {' '.join(options)}")

    def _is_declared(self, leveret: LeveretProcess) -> bool:
        with suppress(OSError):
            found = {each["name"] for each in Management(leveret.http_url).request("GET", "queues", _VHOST)}
            return all(name in found for line in self.lines for name in line.queues)
        return False

    # -- kills -----------------------------------------------------------------------------------------------------

    def _kill(self, target: str) -> None:
        self.kills[target] += 1
        self._last_kill = target
        if target == "Leveret":
            self._leveret.restart(crash=True)
        elif target == "the other broker":
            self._restart()
        elif target == "the command":
            assert self._command is not None
            self._command.kill()
            self._note_end(self._command)
            self._start_command()
        else:
            api = Management(self._management)
            with suppress(OSError):
                for each in api.request("GET", "vhosts", _VHOST, "connections"):
                    with suppress(OSError):
                        api.request("DELETE", "connections", each["name"])

    # -- the end ---------------------------------------------------------------------------------------------------

    def _is_missing(self) -> bool:
        return any(line.missing for line in self.lines if KINDS[line.kind].durable)

    def close(self) -> None:
        """End the command."""
        if self._command is not None:
            self._command.kill()
            self._command.communicate()

    def _collect(self, clients: Sequence[Client]) -> None:
        for client in clients:
            client.end()
            self.wrong += client.wrong
            client.wrong = []

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 600
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited too long until {what}")
            self._keep_command(0.2)

    def print(self) -> None:
        """Print the ledger."""
        print(f"kills: {dict(self.kills)}; ends of the command: {dict(self.ends.most_common())}")
        for kind in KINDS:
            lines = [line for line in self.lines if line.kind == kind]
            queues = sum(len(line.queues) for line in lines)
            accepted, missing = sum(len(line.accepted) for line in lines), sum(len(line.missing) for line in lines)
            late, refused = sum(len(line.out_of_order()) for line in lines), sum(line.refused for line in lines)
            twice = sum((line.twice for line in lines), Counter[str]())
            print(
                f"{kind:10} {queues:3} queues {accepted:8} accepted {missing:5} missing {late:5} late"
                f" {refused:5} refused; twice: {dict(twice.most_common()) or 0}"
            )
        for each in self.report:
            if each["result"] != "moved":
                print(f"report: {each}")
        for found in self.wrong:
            print(f"BROKEN: {found}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Move the queues, and print the ledger; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.torture.moving_in", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True, help="AMQP URL of the other broker, with user and password")
    parser.add_argument("--management", required=True, help="URL of its HTTP API, with an administrator")
    parser.add_argument("--restart", required=True, metavar="COMMAND", help="kills it and starts it again")
    parser.add_argument("--sets", type=int, default=1, help="twelve queues, of all kinds, each; default: 1")
    parser.add_argument("--messages", type=int, default=6000, help="in all; default: 6000")
    parser.add_argument("--kills", type=int, default=1, help="of each of the four; default: 1")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between kills; default: 3")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    given = parser.parse_args(arguments)

    def restart() -> None:
        subprocess.run(given.restart, shell=True, check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory(prefix="leveret-moving-") as directory:
        place = (given.url, given.management, restart, Path(directory))
        move = Move(*place, given.sets, given.messages, given.seed)
        # Then what was started is ended, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            move.run(given.kills, given.pause)
        except GONE as error:
            move.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            move.close()
        move.print()
    return int(bool(move.wrong))


if __name__ == "__main__":
    sys.exit(main())
