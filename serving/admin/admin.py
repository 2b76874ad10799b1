"""The admin side of one gateway: puts settings into force, answers its API."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.admin.api import AdminApi
from serving.admin.desk import Desk
from serving.admin.door import door_of, keys_of
from serving.admin.ledger import Change
from serving.admin.record import CHANGES_FILE, Record
from serving.admin.settings import INSTANCE, Settings
from serving.admin.state import state
from serving.exchange import Exchange
from serving.lifecycle import Lifecycle
from serving.pairs import PairBook
from serving.schedule.admit import Admission
from serving.schedule.retry import Retries
from serving.service import Service
from serving.telemetry import Telemetry
from toolkit.core import names
from toolkit.core.clock import Clock


class Admin:
    """Owns the desk. `restore`, then `open`, then `handle`; `run` ends changes that were made for a while."""

    def __init__(
        self,
        service: Service,
        run_dir: Path,
        clock: Clock,
        book: PairBook,
        admission: Admission,
        retries: Retries,
        lifecycle: Lifecycle,
        telemetry: Telemetry,
        stores: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """stores: how each store stands that requests go on without."""
        self._service = service
        self._run_dir = run_dir
        self._clock = clock
        self._book = book
        self._admission = admission
        self._retries = retries
        self._lifecycle = lifecycle
        self._telemetry = telemetry
        self._stores = stores
        record = Record(run_dir / CHANGES_FILE)
        self.desk = Desk(Settings.of(service), record, clock, self._apply, self._up, self._made)
        self._api: AdminApi | None = None

    def restore(self) -> None:
        """What an earlier gateway of this run folder was told holds again. Raises EnvironmentFault."""
        self.desk.restore()
        self._show()

    def open(self, port: int) -> None:
        """Let those in who hold a token; the run folder tells where. Raises EnvironmentFault, UsageFault."""
        door = door_of(self._service.config.admin, self._run_dir, port)
        self._api = AdminApi(self.desk, keys_of(door), self.state, self._service.gateway_url)
        door.write(self._run_dir)

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        assert self._api is not None, "open() comes first"
        await self._api.handle(exchange)

    def state(self) -> dict[str, Any]:
        """What is so now."""
        now = state(
            self._service,
            self.desk.ledger,
            self._book,
            self._admission,
            self._retries,
            self._clock,
            self._lifecycle,
        )
        return {**now, "stores": self._stores()}

    def _up(self) -> set[str]:
        return {name for name in self._book.engines if self._book.is_up(name)}

    def _apply(self, settings: Settings) -> None:
        for name, placing in settings.instances.items():
            if placing.drained:
                ends_at = self.desk.ledger.ends_at(f"{INSTANCE}{name}.drained")
                until = ends_at and self._clock.monotonic() + ends_at - self._clock.wall()
                self._book.drain(name, until)
            else:
                self._book.undrain(name)
            self._book.weigh(name, placing.weight)
        self._retries.retune(settings.config.retry)
        self._lifecycle.retune(settings.config)

    def _made(self, change: Change) -> None:
        self._telemetry.count(names.ADMIN_CHANGES, kind=change.kind)
        self._show()

    def _show(self) -> None:
        self._telemetry.gauge(names.ADMIN_OVERRIDDEN, len(self.desk.ledger.overridden()))
