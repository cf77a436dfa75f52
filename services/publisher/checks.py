"""What can be told before the worker starts: each failure is one sentence that names the setting to change."""

from __future__ import annotations

from services.publisher.repository import check_schema
from services.publisher.settings import PublisherSettings
from shared.storage import open_store
from shared.worker import checks


def check(settings: PublisherSettings) -> None:
    """Raise `SettingsError` where the publisher cannot work. Engines and storage need not be up yet."""
    checks.check_engines(settings.engines)
    checks.check_folder("TABWISE_SERVING_ROOT", settings.serving_root)
    open_store(settings.storage)
    checks.check_metrics_port("TABWISE_PUBLISHER_METRICS_PORT", settings.metrics_host, settings.publisher_metrics_port)
    check_database(settings.database_url)
    checks.check_broker(settings.broker_url)


def check_database(url: str) -> None:
    """It must answer and have the publisher's tables."""
    checks.check_database(url, check_schema)
