"""The application of `tasks`, with queues of its own."""

from __future__ import annotations

from tests.matrix.programs.celery.queues import QUEUES
from tests.matrix.programs.celery.tasks import app

app.conf.task_queues = QUEUES
