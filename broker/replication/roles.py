"""One node of a cluster: follows the leader that the register names, and leads when it is its turn."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.following import Following
from leveret.broker.replication.frames import FrameError
from leveret.broker.replication.link import Link, LinkError, Refused, accept, answer, connect
from leveret.broker.replication.node_record import OWN, NodeRecord, finish_switch, read_record, store_id, write_record
from leveret.broker.replication.register import NewerStateError, Register, RegisterError, State
from leveret.broker.replication.shipping import Limits, Shipping
from leveret.storage.disk.files import DiskFiles
from leveret.storage.disk.recording import Operations
from leveret.storage.format import FORMAT_VERSION

log = logging.getLogger("leveret.replication")

#: Seconds between attempts to reach a leader, and the register.
_RETRY_SECONDS: Final = 0.25
#: Seconds for another node to say where its copy ends, and to lead if it has more.
_POSITION_SECONDS: Final = 0.3
_BEHIND_SECONDS: Final = 1.0
#: Seconds for the answer to who asks for another leader.
_ANSWER_SECONDS: Final = 0.05
#: Leases after which a claim of this node's name that is not its own is another node's.
_NAMESAKE_LEASES: Final = 3


class ReplicationError(RuntimeError):
    """This node cannot be part of the cluster; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is told by its configuration.

    Attributes:
        name: Its name in the cluster.
        root: The data directory.
        address: Host and port at which the others reach its replication port.
        secret: The shared secret; empty without one.
        lease: Seconds of the leader's lease.
        limits: Limits.
        backlog: Bytes of frames that are kept.
        server_tls, client_tls: Encrypt the links; None for no encryption.
    """

    name: str
    root: Path
    address: str
    secret: str
    lease: float
    limits: Limits
    backlog: int
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None


class Host(Protocol):
    """What opens and closes the broker. Its methods are called in the event loop of replication."""

    async def lead(self, shipping: Shipping, operations: Operations, epoch: int) -> None:
        """Open the broker on the data directory, and serve clients.

        Raises:
            ReplicationError: It cannot be opened.
        """

    async def stop_leading(self, is_clean: bool, reason: str) -> None:
        """Close the broker.

        Args:
            is_clean: Whether everything is to be written; otherwise this node does not lead any more.
            reason: Why, for the log.
        """

    async def stand_by(self, leader: str, address: str) -> None:
        """Forward clients to the leader.

        Args:
            leader: Its name; "" if there is none.
            address: Host and port of its replication port.
        """

    def set_enough_copies(self, enough: bool) -> None:
        """Block publishers unless there are enough copies."""

    async def forward(self, link: Link, wish: dict[str, Any]) -> None:
        """Serve a client whose connection another node forwards, until it ends."""


class Member:
    """A node of a cluster. Used by the event loop of replication.

    Args:
        plan: What the configuration says.
        register: The register.
        host: Opens and closes the broker.

    Attributes:
        role: `leader` or `standby`.
        shipping: What a leader ships; None on a standby.
        following: What a standby follows; None on a leader.
        state: The register's state when it was read last; None before.
    """

    def __init__(self, plan: Plan, register: Register, host: Host) -> None:
        self._plan = plan
        self._register = register
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._backlog = Backlog(plan.root / OWN / "backlog", plan.backlog)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._record = NodeRecord()
        self._lock_handle = -1
        self._following_task: asyncio.Task[None] | None = None
        self._followed = ("", "", 0)
        self._revision = 0
        self._valid_until = 0.0
        self._lost = ""
        self._changing = asyncio.Lock()
        self._hand_over_to: str | None = None
        self._stops = False
        self._wake = asyncio.Event()
        self._namesake_since = 0.0
        self._waiting_since = 0.0
        self.role = "standby"
        self.shipping: Shipping | None = None
        self.following: Following | None = None
        self.state: State | None = None

    # --- the life of a node -------------------------------------------------------------------------------------------

    async def run(self, sock: Any) -> None:
        """Be a node until stop() is called.

        Args:
            sock: The listening socket of the replication port.
        Raises:
            ReplicationError: This node cannot be part of the cluster.
        """
        plan = self._plan
        plan.root.mkdir(parents=True, exist_ok=True)
        try:
            self._record = finish_switch(plan.root, read_record(plan.root))
        except (OSError, ValueError) as error:
            raise ReplicationError(f"cannot use the data directory {plan.root}: {error}") from error
        self._server = await asyncio.start_server(self._accept, sock=sock, ssl=plan.server_tls)
        self._lock()
        self._begin_to_follow()
        warned = False
        try:
            await self._host.stand_by("", "")
            while not self._stops:
                try:
                    await self._step()
                    warned = False
                except RegisterError as error:
                    if not warned:
                        log.error("%s; trying again", error)
                    warned = True
                    await self._pause(_RETRY_SECONDS)
        finally:
            await self._end()

    async def _step(self) -> None:
        """Read the register once, and do what it says."""
        try:
            reading = await self._register.read()
        except NewerStateError as error:
            raise ReplicationError(str(error)) from error
        self.state, self._revision = reading.state, reading.revision
        state, name = reading.state, self._plan.name
        if reading.claimed_by == name and state is not None:
            self._check_namesake(state)
        if self._may_claim(state, reading.claimed_by) and not await self._lets_others_claim(state, reading.claimed_by):
            if await self._claim(state):
                await self._lead()
            return
        if state is not None and reading.claimed_by and reading.claimed_by != name:
            await self._follow(state)
        await self._pause(self._plan.lease / 3 if reading.claimed_by else _RETRY_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Wait until the register may have changed, or something is asked of this node."""
        waiting = asyncio.create_task(self._register.wait(seconds))
        woken = asyncio.create_task(self._wake.wait())
        await asyncio.wait({waiting, woken}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, woken):
            task.cancel()
        await asyncio.gather(waiting, woken, return_exceptions=True)
        self._wake.clear()

    def _check_namesake(self, state: State) -> None:
        """Refuse to go on if another node has this one's name, and leads."""
        if state.addresses.get(self._plan.name) == self._plan.address:
            # It was this node's last run: its port is ours now.
            return
        now = self._loop.time()
        self._namesake_since = self._namesake_since or now
        if now - self._namesake_since > _NAMESAKE_LEASES * self._plan.lease:
            raise ReplicationError(
                f"another node is called {self._plan.name} and leads at {state.addresses.get(self._plan.name)};"
                " set replication.node to another name"
            )

    def _may_claim(self, state: State | None, claimed_by: str) -> bool:
        name = self._plan.name
        if claimed_by and not (
            claimed_by == name and state is not None and state.addresses.get(name) == self._plan.address
        ):
            return False
        if state is None:
            return True
        return name in state.in_sync and state.store in ("", store_id(self._plan.root))

    async def _lets_others_claim(self, state: State | None, claimed_by: str) -> bool:
        """Return whether others of the in-sync set should claim first, for a while.

        One has been chosen by the last leader; or this node does not know where its copy ends, after a crash, and all
        others would need new copies of it; or another has more operations, and would need a new copy.
        """
        name, following = self._plan.name, self.following
        if state is None:
            return False
        is_unsure = following is not None and not following.epoch and {*state.in_sync} != {name}
        if is_unsure and claimed_by == name:
            log.warning("lets another node lead: this one has ended uncleanly")
            await self._register.resign()
        now, patience = self._loop.time(), self._plan.lease
        if not is_unsure and state.successor in ("", name):
            if state.successor == name or not await self._is_behind(state):
                self._waiting_since = 0.0
                return False
            patience = _BEHIND_SECONDS
        self._waiting_since = self._waiting_since or now
        return now - self._waiting_since < patience

    async def _is_behind(self, state: State) -> bool:
        """Ask the others of the in-sync set where their copies end; return whether one has more than this node."""
        following = self.following
        others = [each for each in state.in_sync if each not in (self._plan.name, state.leader)]
        if following is None or not others:
            return False
        found = await asyncio.gather(*(self._ask_position(state.addresses.get(each, "")) for each in others))
        return max(found) > (following.epoch, following.number)

    async def _ask_position(self, address: str) -> tuple[int, int]:
        """Return the epoch and number at which a node's copy ends; zeros if it does not say at once."""
        plan, (host, _, port) = self._plan, address.rpartition(":")
        try:
            async with asyncio.timeout(_POSITION_SECONDS):
                wish = {"purpose": "position", "node": plan.name}
                link, told = await connect(host.strip("[]"), int(port), plan.secret, wish, plan.client_tls)
                link.close()
                return int(told["epoch"]), int(told["number"])
        except (OSError, EOFError, LinkError, ValueError, KeyError):
            return 0, 0

    async def _claim(self, state: State | None) -> bool:
        """Try to become the leader; return whether this node is."""
        plan, following = self._plan, self.following
        if following is not None:
            await self._stop_following()
        epoch, number = (following.epoch, following.number) if following is not None else self._record.position
        if not epoch:
            number = 0
        if state is None:
            state = State(0, plan.name, (plan.name,))
        claimed = state.next(plan.name, plan.address, epoch, number)
        asked = self._loop.time()
        revision = await self._register.claim(claimed, self._revision)
        if revision is None:
            self._begin_to_follow()
            return False
        self.state, self._revision, self._valid_until = claimed, revision, asked + plan.lease
        if not epoch:
            self._backlog.clear(number)
        self._record = NodeRecord("leading", claimed.epoch, number)
        write_record(plan.root, self._record)
        return True

    # --- leading ------------------------------------------------------------------------------------------------------

    @property
    def may_confirm(self) -> bool:
        """Whether the lease cannot have run out, and nobody else leads."""
        return not self._lost and self._loop.time() < self._valid_until

    @property
    def has_lost(self) -> bool:
        """Whether this node does not lead any more."""
        return bool(self._lost)

    async def change(self, change: Callable[[State], State]) -> bool:
        """Change the register's state; see Judge."""
        async with self._changing:
            while self.role == "leader" and not self._lost and self.state is not None:
                try:
                    wanted = change(self.state)
                    revision = await self._register.write(wanted, self._revision)
                    if revision is not None:
                        self._note_state(wanted, revision)
                        return True
                    await self._read_as_leader()
                except RegisterError:
                    # Whether it was written is not known.
                    await asyncio.sleep(_RETRY_SECONDS)
                    with suppress(RegisterError):
                        await self._read_as_leader()
            return False

    def _note_state(self, state: State, revision: int) -> None:
        self.state, self._revision = state, revision
        if self.shipping is not None:
            self.shipping.note_state(state)

    async def _read_as_leader(self) -> None:
        """Read the register; note if this node does not lead any more."""
        reading = await self._register.read()
        state, now = reading.state, self.state
        assert now is not None
        if state is None or state.epoch != now.epoch or state.leader != self._plan.name:
            who = "nobody" if state is None else state.leader
            self._lose(f"the register says that {who} leads epoch {0 if state is None else state.epoch}")
        elif reading.claimed_by not in ("", self._plan.name):
            self._lose(f"{reading.claimed_by} has claimed the leadership")
        elif reading.revision != self._revision:
            self._note_state(state, reading.revision)

    def _lose(self, reason: str) -> None:
        if not self._lost:
            self._lost = reason
            self._wake.set()

    async def _lead(self) -> None:
        """Lead until the leadership is lost, handed over or given up."""
        plan, state = self._plan, self.state
        assert state is not None
        self._lost = ""
        self._hand_over_to = None
        following, self.following = self.following, None
        if following is not None:
            following.retire()
        operations = Operations(self._record.number, self._ship_soon)
        self.role = "leader"
        log.warning("leads epoch %d from operation %d; in sync: %s", state.epoch, operations.number, state.in_sync)
        self.shipping = shipping = Shipping(
            plan.name, plan.root, state.epoch, operations, self._backlog, state, self, plan.limits,
            self._host.set_enough_copies,
        )  # fmt: skip
        renewing = asyncio.create_task(self._renew())
        is_clean = False
        try:
            self._unlock()
            await self._host.lead(shipping, operations, state.epoch)
            store = store_id(plan.root)
            if state.store != store:
                await self.change(lambda state: replace(state, store=store))
            while not (self._lost or self._stops or self._hand_over_to is not None):
                await self._pause(plan.lease / 2)
                with suppress(RegisterError):
                    await self._read_as_leader()
            if not self._lost:
                is_clean = await self._hand_over(shipping, operations)
            if not is_clean:
                await self._host.stop_leading(False, self._lost or "this node stops")
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            self.role = "standby"
            self.shipping = None
            await shipping.close()
        self._record = NodeRecord("leading", state.epoch, 0)
        if is_clean:
            shipping.ship()
            self._record = NodeRecord("nothing", state.epoch, operations.number)
            write_record(plan.root, self._record)
        log.warning("does not lead any more: %s", self._lost or "handed over")
        if not self._stops:
            self._lock()
            self._begin_to_follow()

    def _ship_soon(self) -> None:
        """Called by the threads that sync."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ship)

    def _ship(self) -> None:
        if self.shipping is not None:
            self.shipping.ship()

    async def _renew(self) -> None:
        """Renew the lease; claim again what has run out while nobody else has claimed it."""
        while True:
            await asyncio.sleep(self._plan.lease / 4)
            asked = self._loop.time()
            try:
                if not await self._register.renew():
                    async with self._changing:
                        await self._read_as_leader()
                        if self._lost or self.state is None:
                            return
                        revision = await self._register.claim(self.state, self._revision)
                        if revision is None:
                            continue
                        self._revision = revision
                self._valid_until = asked + self._plan.lease
            except RegisterError as error:
                log.error("the lease cannot be renewed: %s", error)

    async def _hand_over(self, shipping: Shipping, operations: Operations) -> bool:
        """Close the broker, wait until a standby has everything, and let it lead; return whether all was written."""
        wanted, plan = self._hand_over_to or "", self._plan
        await self._host.stop_leading(True, "it is handed over")
        deadline = self._loop.time() + plan.limits.timeout
        successor = ""
        while self.state is not None and len(self.state.in_sync) > 1 and self._loop.time() < deadline:
            shipping.ship()
            successor = shipping.choose_successor(wanted)
            if successor:
                break
            await asyncio.sleep(0.01)
        async with self._changing:
            state = self.state
            assert state is not None
            in_sync = state.in_sync
            if successor and self._stops:
                in_sync = tuple(each for each in in_sync if each != plan.name)
            try:
                done = await self._register.resign(replace(state, successor=successor, in_sync=in_sync), self._revision)
                if done is None:
                    log.error("the leadership could not be handed over; it ends with its lease")
            except RegisterError as error:
                log.error("the leadership could not be handed over, and ends with its lease: %s", error)
        return True

    async def hand_over(self, wanted: str = "") -> str:
        """Begin to let a node of the in-sync set lead in this one's place; return its name.

        Args:
            wanted: Its name; "" for any.
        Raises:
            ReplicationError: This node does not lead, or no such node is in sync.
        """
        if self.shipping is None or self.state is None:
            raise ReplicationError("this node does not lead")
        others = [name for name, each in self.shipping.standbys.items() if name in self.state.in_sync and each.link]
        if wanted not in ("", *others) or not others:
            listed = ", ".join(others) or "none"
            raise ReplicationError(f"{wanted or 'no other node'} is not in sync and connected; these are: {listed}")
        self._loop.call_later(_ANSWER_SECONDS, self._begin_hand_over, wanted or others[0])
        return wanted or others[0]

    def _begin_hand_over(self, wanted: str) -> None:
        self._hand_over_to = wanted
        self._wake.set()

    # --- following ----------------------------------------------------------------------------------------------------

    def _begin_to_follow(self) -> None:
        if self.following is None:
            plan = self._plan
            self.following = Following(
                plan.name, plan.root, self._record, self._backlog, plan.address, plan.secret, plan.client_tls
            )

    async def _follow(self, state: State) -> None:
        """Follow the leader of a state, unless this node does."""
        address = state.addresses.get(state.leader, "")
        followed = state.leader, address, state.epoch
        if followed != self._followed or self._following_task is None:
            await self._stop_task()
            self._followed = followed
            self._following_task = asyncio.create_task(self._keep_following(*followed))
            await self._host.stand_by(state.leader, address)

    async def _keep_following(self, leader: str, address: str, epoch: int) -> None:
        """Connect to a leader, again and again."""
        following, told = self.following, ""
        assert following is not None
        host, _, port = address.rpartition(":")
        while True:
            reason = f"the link to {leader} is closed"
            try:
                await following.follow(host.strip("[]"), int(port), epoch)
            except Refused as error:
                reason = f"{leader} refuses this node: {error}"
            except (LinkError, FrameError) as error:
                reason = f"the link to {leader} is closed: {error}"
            except (OSError, EOFError) as error:
                reason = f"the link to {leader} is broken: {str(error) or type(error).__name__}"
            except Exception as error:  # noqa: BLE001 - the next attempt makes a copy
                reason = f"cannot follow {leader}: {error!r}"
            if self._followed != (leader, address, epoch):
                return
            if reason != told:
                log.warning("%s; trying again", reason)
            told = reason
            await asyncio.sleep(_RETRY_SECONDS)

    async def _stop_task(self) -> None:
        """End the connection to a leader; what has begun is done first."""
        task, self._following_task = self._following_task, None
        self._followed = ("", "", 0)
        if task is not None and self.following is not None:
            while not task.done():
                if not self.following.disconnect():
                    # It waits to connect again.
                    task.cancel()
                await asyncio.wait({task}, timeout=0.05)

    async def _stop_following(self) -> None:
        await self._stop_task()
        if self.following is not None:
            await self.following.rest()

    # --- links --------------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve another node that has connected."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        link = Link(reader, writer)
        try:
            wish = await accept(link, self._plan.secret, self._plan.server_tls is not None)
            await self._serve(link, wish)
            # What has been answered is sent.
            writer.close()
        except LinkError as error:
            log.warning("a node at %s is refused: %s", writer.get_extra_info("peername"), error)
        except (OSError, EOFError, asyncio.CancelledError):
            # Cancelled by _end() alone; a stream's task that ends so would be logged.
            pass
        except Exception:
            log.exception("internal error on a link")
        finally:
            self._serving.discard(task)
            if not writer.is_closing():
                link.close()

    async def _serve(self, link: Link, wish: dict[str, Any]) -> None:
        secret, shipping, name = self._plan.secret, self.shipping, str(wish.get("node", ""))
        if wish.get("purpose") == "position" and self.following is not None:
            answer(link, secret, wish, {"epoch": self.following.epoch, "number": self.following.number})
            await link.drain()
            return
        if shipping is None or self.state is None or self._lost:
            answer(link, secret, wish, {"refused": "this node does not lead"})
            await link.drain()
            return
        if wish.get("purpose") == "forward":
            answer(link, secret, wish, {"epoch": self.state.epoch})
            await self._host.forward(link, wish)
            return
        refusal = shipping.refusal(name, str(wish.get("store", "")), bool(wish.get("is_empty")))
        if refusal:
            answer(link, secret, wish, {"refused": refusal})
            await link.drain()
            log.warning("%s may not follow: %s", name, refusal)
            return
        answer(link, secret, wish, {"epoch": self.state.epoch, "format": FORMAT_VERSION})
        await shipping.serve(link, name, int(wish["epoch"]), int(wish["number"]), str(wish["address"]))

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let run() end: a leader hands over first."""
        self._stops = True
        self._wake.set()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.following is not None:
            await self._stop_task()
            await self.following.close()
        self._unlock()
        self._backlog.close()
        await self._register.close()

    def _lock(self) -> None:
        """Lock the data directory, as a broker does.

        Raises:
            DirectoryInUseError: Another process has locked it.
        """
        self._lock_handle = DiskFiles().lock(str(self._plan.root / "LOCK"))

    def _unlock(self) -> None:
        if self._lock_handle >= 0:
            DiskFiles().close(self._lock_handle)
            self._lock_handle = -1
