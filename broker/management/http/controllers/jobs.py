"""Jobs that return dead letters, replay streams or restore queues from backups, and the backups.

RabbitMQ has no such resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from aiohttp import web

from leveret.broker.auth.accounts import User
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.management.fields import BACKUP
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.views import document_maker
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import (
    bad_request_if,
    existing,
    json_response,
    not_authorised,
    object_response,
)
from leveret.broker.operations.jobs.job import READERS, Job, Kind, counts_document
from leveret.broker.operations.jobs.plans import Counts
from leveret.broker.operations.jobs.runner import new_work, open_source
from leveret.protocol.faults import ChannelFault

#: Messages that a step of a dry run looks at.
_STEP = 256


class JobResources(Controller):
    """The resources ``/api/queues/{vhost}/{name}/return-messages``, ``…/replay``, ``…/restore`` and ``/api/jobs``."""

    @route("POST", "queues/{vhost}/{name}/{kind:return-messages|replay}")
    async def begin(self, request: web.Request) -> web.Response:
        """Begin to return dead letters or to replay a stream; with dry_run count messages. The body has the options."""
        kind: Kind = "replay" if request.match_info["kind"] == "replay" else "return"
        principal, name = self._access.require_connect(request), request.match_info["name"]
        document = await read_object(request)
        with bad_request_if(ValueError):
            options = READERS[kind](document)
            if not document.get("dry_run"):
                job = self._context.jobs.begin(kind, principal, name, document)
                return json_response(job.shown(), status=201)
        source = open_source(principal, name, options)
        work = new_work(principal, source, options)

        def steps() -> Iterator[None]:
            while not work.is_over and not source.deleted:
                work.step(_STEP, takes=False)
                yield

        await run_in_slices(steps())
        return json_response({"dry_run": True, **counts_document(work.counts)})

    @route("POST", "queues/{vhost}/{name}/restore", tag="monitoring")
    async def begin_restore(self, request: web.Request) -> web.Response:
        """Begin to restore a queue, which may be gone, from a backup, or count its messages with dry_run.

        The body has the options. Only monitors see backups.
        """
        principal, name = self._access.require_connect(request), request.match_info["name"]
        document = {**await read_object(request), "queue": name}
        with bad_request_if(ValueError):
            options = READERS["restore"](document)
            if not document.get("dry_run"):
                return json_response(self._context.jobs.begin("restore", principal, name, document).shown(), status=201)
        assert options.restore is not None
        principal.check("read", "queue", name)
        messages = self._context.jobs.require_backups()(principal.vhost.name, name, options.restore.at, 0)
        try:
            total = await messages.count()
        finally:
            messages.close()
        return json_response({"dry_run": True, **counts_document(Counts(total, total))})

    @route("GET", "jobs", "jobs/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List the jobs of all virtual hosts, or of one, the newest first."""
        user, vhosts = self._access.listed_vhosts(request)
        jobs = self._context.jobs.listed({vhost.name for vhost in vhosts})
        view = View[Job](partial(self._shown, user), order=lambda job: -job.created, name=lambda job: job.queue)
        return await list_response(request, jobs, view, paginated=True)

    @route("GET", "jobs/{vhost}/{job}")
    async def show(self, request: web.Request) -> web.Response:
        """Show one job."""
        user, _ = self._access.require_vhost(request)
        return object_response(request, self._shown(user, self._find(request)))

    @route("DELETE", "jobs/{vhost}/{job}")
    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a running job, or forget one that has ended. Its user may do so, and administrators."""
        self._context.jobs.cancel(self._find_own(request))
        return web.Response(status=204)

    @route("POST", "jobs/{vhost}/{job}/resume")
    async def resume(self, request: web.Request) -> web.Response:
        """Continue a paused job. Its user may do so, and administrators."""
        job = self._find_own(request)
        self._context.jobs.resume(job)
        return json_response(job.shown())

    def _shown(self, user: User, job: Job) -> dict[str, Any]:
        """Return a job as JSON: without what it says about messages, for who may not read those of its queue."""
        if job.user == user.name or has_tag(user, "administrator"):
            return job.shown()
        try:
            self._context.accounts.check(user, job.vhost, "read", "queue", job.queue)
        except ChannelFault:
            return job.shown(in_full=False)
        return job.shown()

    def _find_own(self, request: web.Request) -> Job:
        """Return a job that the user of a request may change."""
        principal = self._access.require_vhost_for_change(request)
        job = self._find(request)
        if job.user != principal.user.name and not has_tag(principal.user, "administrator"):
            raise not_authorised(f"job '{job.job_id}' belongs to another user")
        return job

    def _find(self, request: web.Request) -> Job:
        return existing(self._context.jobs.find(request.match_info["vhost"], request.match_info["job"]))


_backup: Final = document_maker(BACKUP)


class BackupResources(Controller):
    """The resource ``/api/backups``, for monitors."""

    @route("GET", "backups", tag="monitoring")
    async def list(self, request: web.Request) -> web.Response:
        """List the backups, the newest first, and which moments can be restored."""
        found = self._context.backups
        if found is None or not found.url:
            nothing = {"url": None, "node": None, "age": None, "late": False, "failures": 0, "error": None}
            return json_response({**nothing, "restorable": [], "backups": []})
        return json_response(
            {
                "url": found.url,
                "node": found.node or None,
                "age": round(found.age, 3),
                "late": found.is_late,
                "failures": found.failures,
                "error": found.error or None,
                "restorable": [{"from": -(-first // 1000), "to": last // 1000} for first, last in found.spans],
                "backups": [_backup(row) for row in reversed(found.rows)],
            }
        )
