"""The composition root: opens the parts of a service and connects them."""

import asyncio
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turret.data.errors import without_credentials
from turret.data.extras import install_command
from turret.service.catalog_search import CatalogSearch
from turret.service.errors import ServiceError
from turret.service.keys.keys import Keyring, admin_key, answer_key
from turret.service.observing.metrics import Metrics
from turret.service.observing.observation import Observation
from turret.service.outcomes.process import count_in_process
from turret.service.outcomes.reports import COUNT_SECONDS, OutcomeReports
from turret.service.outcomes.request import CountRequest
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.item_writer import ItemWriter
from turret.service.popular.popular_now import PopularNow
from turret.service.ranking.candidate import Comparison
from turret.service.ranking.exploration import Explorer
from turret.service.ranking.query import QueryReader
from turret.service.ranking.recommender import Recommender, Shadow
from turret.service.settings import Settings
from turret.service.stores.contract import Stores
from turret.service.stores.guarded import Breaker
from turret.service.stores.registry import open_stores, store_kind
from turret.service.stores.sqlite.shared import open_records, shared_folder
from turret.service.versions.activation import Activator
from turret.service.versions.folder import make_folder, record_of
from turret.service.versions.follower import Follower
from turret.service.versions.gate import run_gate
from turret.service.versions.gate_process import run_gate_in_process
from turret.service.versions.gate_report import GateReport, GateRequest
from turret.service.versions.holder import ModelHolder
from turret.service.versions.record import Record
from turret.tower.engines.access import set_access
from turret.tower.errors import BundleError

if TYPE_CHECKING:
    from turret.service.answer_log.log import AnswerLog

RESTART_SECONDS = 2.0  # from the failure of a background task to its next start
_log = logging.getLogger("turret.background")


@dataclass
class WorkerContext:
    """The parts that a worker has from its supervisor. Without a supervisor it makes them itself.

    `supervisor` is the pid of the supervisor; None: no process is started. `number` counts the workers from
    0. `folder` holds the metrics of all workers, and their record where no store has one. `keyring` has the
    keys as they were last read, and `record` is the first record that this worker has read. `admin_port` is
    the number of the only port with admin calls (None: that of the settings), `host` names this service among
    its replicas. `is_draining` becomes true when the service begins to end.
    """

    supervisor: int | None = None
    number: int = 0
    folder: Path | None = None
    keyring: Keyring | None = None
    admin_port: int | None = None
    host: str = "local"
    record: Record | None = None
    is_draining: bool = False


class BackgroundTasks:
    """The tasks of an event loop that run until `close`, or until they return.

    A task that fails is logged and started again, and the others go on; until then its name is in `down`.
    """

    def __init__(self) -> None:
        self.down: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task; `work` is called again after each failure."""
        self._tasks.append(asyncio.create_task(self._run(name, work), name=name))

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.current_task()
        while True:
            try:
                await work()
                return
            except (Exception, asyncio.CancelledError):
                if task is not None and task.cancelling():
                    raise
                _log.exception("background task %s failed; starting it again", name)
            self.down.add(name)
            await asyncio.sleep(RESTART_SECONDS)
            self.down.remove(name)


class Components:
    """The parts of one worker.

    `stores` replace those that the settings name. Raises ServiceError or BundleError if the bundles
    can't be served or a store can't be opened.
    """

    def __init__(
        self, settings: Settings, context: WorkerContext | None = None, stores: Stores | None = None
    ) -> None:
        self.settings = settings
        self.background = BackgroundTasks()
        self.context = context = context or WorkerContext()
        self.admin_port = context.admin_port or settings.admin_port
        set_access(settings.engine, settings.engine_seconds)
        self.model_holder = holder = ModelHolder(settings.bundles)
        self._open_first()
        self.keyring = context.keyring or Keyring(settings.keys, admin_key(settings), settings.require_keys)
        stores = stores or open_stores(settings)
        self.histories = Breaker(stores.histories, settings.history_timeout, settings.write_timeout)
        self.items = stores.items
        self.overlay = ItemOverlayCache(self.items, settings.write_timeout, settings.history_timeout)
        holder.prepare = self.overlay.of
        self.catalog_search = CatalogSearch()
        self.observation = Observation(
            settings,
            lambda: holder.live.bundle if holder.version else None,
            self.histories.circuits,
            context.folder,
            context.number,
        )
        self.metrics = self.observation.metrics
        self.metrics.refresh_with(self._count_items)
        if (folder := context.folder) is None:
            stack = ExitStack()
            folder = stack.enter_context(shared_folder())
            weakref.finalize(self, stack.close)
        records = open_records(settings, folder)
        is_shared = store_kind(settings.store).open_records is not None
        member = f"{context.host}/{os.getpid()}"
        self.follower = Follower(holder, records, member, self.overlay, self.metrics, is_shared)
        self.activator = Activator(holder, self.follower, records, settings, self._run_gate)
        self.item_writer = ItemWriter(
            self.items, self.overlay, settings.overlay_bytes, settings.write_timeout, self.follower.announce
        )
        self.popular = PopularNow(self.histories, holder, settings.popular)
        queries = QueryReader(
            self.histories, self.overlay, settings, lambda: holder.traffic.routes.rules, self.popular
        )
        self.comparison = Comparison(holder, self.activator, self.overlay, queries, self.histories)
        shadow, explorer = Shadow(holder, self.overlay, self.metrics), Explorer(settings.workers)
        self.recommender = Recommender(
            holder, self.overlay, queries, shadow, self.observation.answered, self.popular, explorer
        )
        self.answer_log = _open_answer_log(settings, context.number, self.metrics)
        self.recommender.answer_log, self.recommender.context = self.answer_log, settings.answer_context
        self.outcomes = OutcomeReports(settings, folder, self._versions_with_values, self._count_outcomes)

    def _versions_with_values(self) -> list[Path]:
        """The folders of the live version and of the canary, which have the values of items."""
        canary = self.model_holder.traffic.routes.canary
        names = [self.model_holder.version, canary.version if canary else None]
        return [self.model_holder.root / name for name in names if name]

    async def _count_outcomes(self, request: CountRequest) -> None:
        """Count in a process of its own, or in a thread of a service without a supervisor."""
        if self.context.supervisor is None:
            from turret.service.outcomes.counting import count_once

            await asyncio.to_thread(count_once, request)
        else:
            await count_in_process(request, COUNT_SECONDS)

    async def _run_gate(self, request: GateRequest) -> GateReport:
        """Check a version in a process of its own, or in a thread of a service without a supervisor."""
        if self.context.supervisor is None:
            return await asyncio.to_thread(run_gate, request)
        return await run_gate_in_process(request, self.settings.gate_seconds)

    def _open_first(self) -> None:
        """Open the versions of the first record, which a worker's context has."""
        settings, context, holder = self.settings, self.context, self.model_holder
        if settings.wait:
            make_folder(settings.bundles)
        record = context.record
        if record is None and context.folder is None and not settings.wait:
            record = record_of(settings.bundles)
        if record is not None:
            try:
                holder.begin(record)
            except BundleError as error:  # the files of the other replicas' version may come later
                if not settings.wait:
                    raise
                holder.record, holder.why_empty = record, str(error)

    def _count_items(self) -> None:
        if self.model_holder.version is not None:
            self.metrics.fresh_items.set(len(self.overlay.last_read(self.model_holder.live.bundle)))

    async def close(self) -> None:
        """Finish the work under way and close the stores."""
        await self.background.close()
        await self.follower.leave()
        await self.comparison.close()
        await self.outcomes.close()
        await self.recommender.close()
        if self.answer_log is not None:
            await asyncio.to_thread(self.answer_log.close)
        await self.catalog_search.close()
        await self.histories.close()
        await self.items.close()
        await self.observation.close()


def _open_answer_log(settings: Settings, worker: int, metrics: Metrics) -> "AnswerLog | None":
    """Open the log of answers, if the settings name one. Raises ServiceError and SourceError."""
    place = settings.answer_log
    if not place:
        return None
    try:
        from turret.service.answer_log.files import AnswerFiles
        from turret.service.answer_log.log import AnswerLog
    except ModuleNotFoundError:
        raise ServiceError(
            "TURRET_ANSWER_LOG is set, but pyarrow is not installed; "
            f"run: {install_command('answers')}, or unset it"
        ) from None

    def count(outcome: str, answers: int) -> None:
        metrics.logged.labels(outcome).inc(answers)

    def count_routes(counts: Mapping[tuple[str, str], int]) -> None:
        for labels, answers in counts.items():
            metrics.logged_answers.labels(*labels).inc(answers)

    key, shown = answer_key(settings), without_credentials(place)
    try:
        files = AnswerFiles(place)
        days, most_bytes = settings.answer_days, settings.answer_bytes
        return AnswerLog(files, key, count, worker, days, most_bytes, count_routes=count_routes)
    except OSError as error:
        raise ServiceError(
            f"the log of answers can't be written to {shown}: {error.strerror}; set TURRET_ANSWER_LOG to a "
            "folder that the service's user can write, or to s3://BUCKET/FOLDER"
        ) from None
