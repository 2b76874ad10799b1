"""Settings of a service with one prefill and two decodes, as configured."""

import time
from typing import Any

from serving.admin.settings import Settings
from serving.config import ServeConfig
from serving.service import EngineEndpoint, Service

UP = ("prefill-0", "decode-0", "decode-1")


def configured(names: tuple[str, ...] = UP, **config: Any) -> Settings:
    engines = [EngineEndpoint(name=name, role=name.partition("-")[0], url=f"http://{name}") for name in names]
    service = Service(
        config=ServeConfig(**config),
        engines=engines,
        gateway_url="http://g",
        model_name="m",
        started_at=time.time(),
    )
    return Settings.of(service)
