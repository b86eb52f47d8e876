"""The composition root: opens the parts of a service and connects them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from turret.service.background_tasks import BackgroundTasks
from turret.service.compare.chosen import ChosenVersion
from turret.service.compare.comparison import Comparison
from turret.service.compare.opening import ComparedVersion, VersionOpener
from turret.service.keys.keyring import Keyring, admin_key
from turret.service.monitoring.observation import Observation
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.item_writer import ItemWriter
from turret.service.ranking.query import QueryReader
from turret.service.ranking.recommender import Recommender
from turret.service.replicas.coordination import Replicas
from turret.service.replicas.follower import Follower
from turret.service.search.catalog_search import CatalogSearch
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.stores.contract import RecordStore, Stores
from turret.service.stores.registry import guarded, open_records, open_stores
from turret.service.thread_priority import lower_priority
from turret.service.versions.activation import Activator
from turret.service.versions.engine_access import engine_access
from turret.service.versions.gate import GateRequest, Passage, pass_gate
from turret.service.versions.gate_process import pass_gate_in_process
from turret.service.versions.model_holder import ModelHolder
from turret.service.versions.shadow import Shadow
from turret.service.worker_context import WorkerContext
from turret.tower.engines.access import set_access


class Components:
    """The parts of one worker.

    `stores` replace those that the settings name. Raises ServiceError or BundleError if the bundles
    can't be served or a store can't be opened.
    """

    def __init__(
        self,
        settings: Settings,
        context: WorkerContext | None = None,
        stores: Stores | None = None,
    ) -> None:
        self.settings = settings
        self.background = BackgroundTasks()
        self.context = context or WorkerContext(SharedState())
        shared_state = self.context.shared_state
        set_access(engine_access(settings))
        self.model_holder = ModelHolder(settings.bundles, settings.wait, shared_state, self.context.number)
        self._records = open_records(settings) if self.context.replica else None
        self.replicas = self._replicas(self._records) if self._records else None
        self.activator = Activator(
            self.model_holder,
            settings,
            self._pass_gate,
            self.replicas,
        )
        self.keyring = self.context.keyring or Keyring(
            settings.keys, admin_key(settings), settings.require_keys
        )
        stores = stores or open_stores(settings)
        self.histories = guarded(stores.histories, settings)
        self.items = stores.items
        self.overlay = ItemOverlayCache(self.items, shared_state.items, settings.write_timeout)
        self.model_holder.prepare = self.overlay.of
        self.catalog_search = CatalogSearch()
        self.item_writer = self._item_writer(settings)
        self.observation = self._observe()
        self.metrics = self.observation.metrics
        self.follower = self._follower(self.replicas, self._records)
        queries = QueryReader(self.histories, self.overlay, settings)
        self.comparison = self._compare(queries)
        self.recommender = Recommender(
            self.model_holder,
            self.overlay,
            queries,
            Shadow(self.model_holder, self.metrics, settings.shadow_queue),
            settings,
            self.observation.answered,
        )

    async def _pass_gate(self, request: GateRequest) -> Passage:
        """Check a version in a process of its own, or in a thread of a service without a supervisor."""
        if self.context.channel is None:
            return await asyncio.to_thread(pass_gate, request)
        return await pass_gate_in_process(request, self.settings.gate_seconds)

    def _replicas(self, records: RecordStore) -> Replicas:
        model_holder = self.model_holder
        return Replicas(
            model_holder.root,
            model_holder.activation_log,
            model_holder.shared_state,
            records,
            self.context.replica,
        )

    def _item_writer(self, settings: Settings) -> ItemWriter:
        return ItemWriter(
            self.items,
            self.overlay,
            settings.fresh_items_limit,
            settings.write_timeout,
            self.replicas.items_behind if self.replicas else None,
        )

    def _follower(self, replicas: Replicas | None, records: RecordStore | None) -> Follower | None:
        if replicas is None or records is None:
            return None
        return Follower(self.model_holder, replicas, records, self.context.replica, self.metrics)

    def _compare(self, queries: QueryReader) -> Comparison:
        settings = self.settings
        thread = ThreadPoolExecutor(1, "comparison", lower_priority)
        chosen = ChosenVersion(self.context.shared_state, settings.comparison_seconds)
        opener = VersionOpener(self.model_holder, self.activator, thread, settings.memory_factor)
        return Comparison(
            self.model_holder,
            ComparedVersion(self.model_holder, chosen, opener),
            self.overlay,
            queries,
            self.histories,
            thread,
            settings.history_timeout,
        )

    def _observe(self) -> Observation:
        observation = Observation(
            self.settings,
            lambda: self.model_holder.live if self.model_holder.version else None,
            self.context.metrics_folder,
            self.context.number,
        )
        observation.follow_circuits(self.histories.circuits)
        observation.follow_items(self.overlay)
        return observation

    async def close(self) -> None:
        """Finish the work under way and close the stores."""
        await self.background.close()
        if self.follower is not None:
            await self.follower.leave()
        await self.comparison.close()
        await self.recommender.close()
        await self.catalog_search.close()
        await self.histories.close()
        await self.items.close()
        await self.observation.close()
