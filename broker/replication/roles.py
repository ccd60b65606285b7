"""One node of a cluster: follows the leader that the register names, and leads when it is its turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.backup_turns import BackupTurns
from leveret.broker.replication.following import Follower, Following
from leveret.broker.replication.leadership import Election, Term
from leveret.broker.replication.link import Link, LinkError, accept, answer
from leveret.broker.replication.node_record import OWN, NodeRecord, finish_switch, read_record, store_id, write_record
from leveret.broker.replication.plan import Host, Plan, ReplicationError
from leveret.broker.replication.register import NewerStateError, Reading, Register, RegisterError, State
from leveret.broker.replication.shipping import Shipping
from leveret.storage.disk.files import DiskFiles
from leveret.storage.disk.recording import Operations
from leveret.storage.format import FORMAT_VERSION

log = logging.getLogger("leveret.replication")

#: Seconds between two looks at the register while nobody leads, or it cannot be reached.
_RETRY_SECONDS: Final = 0.25
#: Seconds for the answer to who asks for another leader.
_ANSWER_SECONDS: Final = 0.05


class Member:
    """A node of a cluster. Used by the event loop of replication.

    It has a follower, or while it leads, a term and what it ships.

    Args:
        plan: What the configuration says.
        register: The register.
        host: Opens and closes the broker.

    Attributes:
        role: `leader`, `standby` or `observer`.
        shipping: What a leader ships; None on others.
    """

    def __init__(self, plan: Plan, register: Register, host: Host) -> None:
        self._plan = plan
        self._register = register
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._election = Election(plan, register)
        self._backlog = Backlog(plan.root / OWN / "backlog", plan.backlog)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._record = NodeRecord()
        self._lock_handle = -1
        self._follower: Follower | None = None
        self._term: Term | None = None
        self._state: State | None = None
        self._hand_over_to: str | None = None
        self._is_promoted = False
        self._stops = False
        self._running: asyncio.Task[None] | None = None
        self._is_abandoned = False
        self._wake = asyncio.Event()
        self._idle_role = "observer" if plan.is_observer else "standby"
        self.role = self._idle_role
        self.shipping: Shipping | None = None

    @property
    def state(self) -> State | None:
        """The register's state when it was read last; None before."""
        term = self._term
        return self._state if term is None else term.state

    @property
    def following(self) -> Following | None:
        """The copy of a node that does not lead; None on a leader."""
        follower = self._follower
        return None if follower is None else follower.copy

    # --- the life of a node -------------------------------------------------------------------------------------------

    async def run(self, sock: Any) -> None:
        """Be a node until stop() is called.

        Args:
            sock: The listening socket of the replication port.
        Raises:
            ReplicationError: This node cannot be part of the cluster.
        """
        plan = self._plan
        self._running = asyncio.current_task()
        plan.root.mkdir(parents=True, exist_ok=True)
        try:
            self._record = finish_switch(plan.root, read_record(plan.root))
        except (OSError, ValueError) as error:
            raise ReplicationError(f"cannot use the data directory {plan.root}: {error}") from error
        self._server = await asyncio.start_server(self._accept, sock=sock, ssl=plan.server_tls)
        self._lock()
        self._follower = Follower(plan, self._record, self._backlog, self._host)
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
                    self._election.note_outage()
                    await self._pause(_RETRY_SECONDS)
        except asyncio.CancelledError:
            if not self._is_abandoned:
                raise
        finally:
            await self._end()

    async def _step(self) -> None:
        """Read the register once, and do what it says."""
        follower = self._follower
        assert follower is not None
        reading = await self._read()
        is_promoted, self._is_promoted = self._is_promoted, False
        if is_promoted or await self._election.should_claim(reading, follower.copy):
            term = await self._claim(reading, follower, is_promoted)
            if term is not None:
                await self._lead(term)
            return
        state = reading.state
        if state is not None and reading.claimed_by not in ("", self._plan.name) and await follower.follow(state):
            await self._host.stand_by(state.leader, state.addresses.get(state.leader, ""))
        await self._pause(self._plan.lease / 3 if reading.claimed_by else _RETRY_SECONDS)

    async def _read(self) -> Reading:
        try:
            reading = await self._register.read()
        except NewerStateError as error:
            raise ReplicationError(str(error)) from error
        self._state = reading.state
        return reading

    async def _pause(self, seconds: float) -> None:
        """Wait until the register may have changed, or something is asked of this node."""
        events = [self._wake] if self._term is None else [self._wake, self._term.has_ended]
        waits: list[Coroutine[Any, Any, object]] = [each.wait() for each in events]
        waiting = [asyncio.create_task(each) for each in (*waits, self._register.wait(seconds))]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        self._wake.clear()

    async def _claim(self, reading: Reading, follower: Follower, is_promoted: bool) -> Term | None:
        """Try to become the leader; return the term if this node is."""
        plan = self._plan
        await follower.rest()
        epoch, number = follower.copy.epoch, follower.copy.number
        if not epoch:
            number = 0
        state = reading.state or State(0, plan.name, (plan.name,))
        make = state.promoted if is_promoted else state.next
        claimed = make(plan.name, plan.address, epoch, number)
        asked = self._loop.time()
        revision = await self._register.claim(claimed, reading.revision)
        if revision is None:
            return None
        if is_promoted:
            log.warning("is promoted by hand")
        if not epoch:
            self._backlog.clear(number)
        follower.copy.retire()
        self._follower = None
        self._record = NodeRecord("leading", claimed.epoch, number)
        write_record(plan.root, self._record)
        return Term(self._register, plan.name, plan.lease, claimed, revision, asked)

    # --- leading ------------------------------------------------------------------------------------------------------

    async def _lead(self, term: Term) -> None:
        """Lead until the leadership is lost, handed over or given up."""
        plan, state = self._plan, term.state
        self._term, self._hand_over_to = term, None
        operations = Operations(self._record.number, self._ship_soon)
        self.role = "leader"
        log.warning("leads epoch %d from operation %d; in sync: %s", state.epoch, operations.number, state.in_sync)
        self.shipping = shipping = Shipping(
            plan.name, plan.root, state.epoch, operations, self._backlog, state, term, plan.limits,
            self._host.set_enough_copies,
        )  # fmt: skip
        term.on_state = shipping.note_state
        renewing = asyncio.create_task(term.keep())
        turns = BackupTurns(plan.name, plan.root, plan.backups, shipping, self._host) if plan.has_backups else None
        choosing: asyncio.Task[None] | None = None
        is_clean = False
        try:
            self._unlock()
            await self._host.lead(shipping, operations, state.epoch)
            store = store_id(plan.root)
            if state.store != store:
                await term.change(lambda state: replace(state, store=store))
            choosing = None if turns is None else asyncio.create_task(turns.run())
            while not (term.lost or self._stops or self._hand_over_to is not None):
                await self._pause(plan.lease / 2)
                with suppress(RegisterError):
                    await term.look()
            if not term.lost:
                await self._hand_over(term, shipping)
                is_clean = True
            else:
                await self._host.stop_leading(False, term.lost)
        finally:
            term.close()
            ending = [renewing] if choosing is None else [renewing, choosing]
            for each in ending:
                each.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            if turns is not None:
                await turns.end()
            self._state, self._term = term.state, None
            self.role = self._idle_role
            self.shipping = None
            await shipping.close()
        self._record = NodeRecord("leading", state.epoch, 0)
        if is_clean:
            shipping.ship()
            self._record = NodeRecord("nothing", state.epoch, operations.number)
            write_record(plan.root, self._record)
        log.warning("does not lead any more: %s", term.lost or "handed over")
        if not self._stops:
            self._lock()
            self._follower = Follower(plan, self._record, self._backlog, self._host)

    def tell_backup(self, line: bytes) -> None:
        """Pass on what the program has said that takes backups on this node."""
        if self.shipping is not None and self.shipping.on_backup is not None:
            self.shipping.on_backup(self._plan.name, line)
        elif self.following is not None:
            self.following.tell_backup(line)

    def _ship_soon(self) -> None:
        """Called by the threads that sync."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ship)

    def _ship(self) -> None:
        if self.shipping is not None:
            self.shipping.ship()

    async def _hand_over(self, term: Term, shipping: Shipping) -> None:
        """Close the broker, wait until a standby has everything, and let it lead."""
        await self._host.stop_leading(True, "it is handed over")
        deadline = self._loop.time() + self._plan.limits.timeout
        successor = ""
        while len(term.state.in_sync) > 1 and self._loop.time() < deadline:
            shipping.ship()
            successor = shipping.choose_successor(self._hand_over_to or "")
            if successor:
                break
            await asyncio.sleep(0.01)
        await term.resign(successor, leaves=self._stops)

    # --- by hand ------------------------------------------------------------------------------------------------------

    async def hand_over(self, wanted: str = "") -> str:
        """Begin to let a node of the in-sync set lead in this one's place; return its name.

        Args:
            wanted: Its name; "" for any.
        Raises:
            ReplicationError: This node does not lead, or no such node is in sync.
        """
        if self.shipping is None or self._term is None:
            raise ReplicationError("this node does not lead")
        in_sync = self._term.state.in_sync
        others = [name for name, each in self.shipping.standbys.items() if name in in_sync and each.link]
        if wanted not in ("", *others) or not others:
            listed = ", ".join(others) or "none"
            raise ReplicationError(f"{wanted or 'no other node'} is not in sync and connected; these are: {listed}")
        self._loop.call_later(_ANSWER_SECONDS, self._begin_hand_over, wanted or others[0])
        return wanted or others[0]

    def _begin_hand_over(self, wanted: str) -> None:
        self._hand_over_to = wanted
        self._wake.set()

    async def forget(self, name: str) -> None:
        """Forget a node that does not come back: it leaves the in-sync set, and is not listed any more.

        Args:
            name: Its name.
        Raises:
            ReplicationError: This node does not lead, that one is connected or not known, or the leadership is lost.
        """
        shipping, term = self.shipping, self._term
        if shipping is None or term is None:
            raise ReplicationError("this node does not lead")
        each = shipping.standbys.get(name)
        if name == self._plan.name or (each is None and name not in term.state.addresses):
            raise ReplicationError(f"there is no other node {name}")
        if each is not None and each.link is not None:
            raise ReplicationError(f"{name} is connected: stop it first")
        if not await term.change(lambda state: state.without(name)):
            raise ReplicationError("this node does not lead any more")
        shipping.standbys.pop(name, None)
        log.warning("%s is forgotten", name)

    async def promote(self, force: bool) -> dict[str, Any]:
        """Begin to lead although this node may not have all that was confirmed.

        Args:
            force: Whether to do so; otherwise nothing happens.
        Returns:
            What may be missing; see Following.missing().
        Raises:
            ReplicationError: This node leads, or another does, or it has no copy, or the register cannot be reached.
        """
        copy = self.following
        if copy is None:
            raise ReplicationError("this node leads already")
        try:
            reading = await self._read()
        except RegisterError as error:
            raise ReplicationError(
                f"{error}; without it no node leads. To go on without the others, start this one with"
                " replication.register none, or with a register of its own"
            ) from error
        if reading.claimed_by:
            raise ReplicationError(f"{reading.claimed_by} leads: stop it first, or wait for replication.lease")
        if not store_id(self._plan.root):
            raise ReplicationError("this node has no copy yet")
        missing = await self._loop.run_in_executor(None, copy.missing)
        if force:
            self._is_promoted = True
            self._wake.set()
        return missing

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
        secret, shipping, term, name = self._plan.secret, self.shipping, self._term, str(wish.get("node", ""))
        if wish.get("purpose") == "position" and self.following is not None:
            answer(link, secret, wish, {"epoch": self.following.epoch, "number": self.following.number})
            await link.drain()
            return
        if shipping is None or term is None or term.lost:
            answer(link, secret, wish, {"refused": "this node does not lead"})
            await link.drain()
            return
        if wish.get("purpose") == "forward":
            answer(link, secret, wish, {"epoch": term.state.epoch})
            await self._host.forward(link, wish)
            return
        refusal = shipping.refusal(name, str(wish.get("store", "")), bool(wish.get("is_empty")))
        if refusal:
            answer(link, secret, wish, {"refused": refusal})
            await link.drain()
            log.warning("%s may not follow: %s", name, refusal)
            return
        answer(link, secret, wish, {"epoch": term.state.epoch, "format": FORMAT_VERSION})
        await shipping.serve(link, wish)

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let run() end: a leader hands over first."""
        self._stops = True
        self._wake.set()

    def abandon(self) -> None:
        """Let run() end as the death of the process does: nobody is told, and nothing is noted."""
        self._is_abandoned = True
        if self._running is not None:
            self._running.cancel()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._follower is not None:
            await (self._follower.abandon() if self._is_abandoned else self._follower.close())
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
