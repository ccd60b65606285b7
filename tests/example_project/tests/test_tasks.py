"""Bills are sent by a worker of Celery."""

import pytest
from celery.contrib.testing.worker import start_worker
from orders.tasks import app, bill


@pytest.fixture
def worker(leveret_url):
    app.conf.broker_url = leveret_url
    with start_worker(app, perform_ping_check=False, shutdown_timeout=30):
        yield
    app.pool.force_close_all()


def test_a_bill(worker):
    assert bill.delay({"chair": 4, "table": 1}).get(timeout=30) == 310
