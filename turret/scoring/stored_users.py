"""The users of a service's store, with the histories that the service reads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Self, TypeVar

import orjson

from turret.data.errors import DataError, without_credentials
from turret.data.vocabulary import STRANGER, Id, is_canonical_integer
from turret.scoring.scorer import QueryBlock
from turret.scoring.users import Load, are_whole, ids_of_file, in_blocks
from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import Query, QueryReader
from turret.service.schemas.requests import BATCH_LIMIT, RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.guarded import Breaker
from turret.service.stores.registry import open_stores, store_kind
from turret.service.stores.sqlite.shared import open_records
from turret.service.versions.folder import kept_record
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import RuleSet, read_record
from turret.tower.bundle.bundle import Bundle

Result = TypeVar("Result")
PATIENCE = 60.0  # seconds for a read: nobody waits for an answer, and a history that is cut changes it
_ALWAYS = -(2**53), 2**53  # a score of Redis holds integers of 53 bits


class OpenStore:
    """The store of a service in an event loop of its own, whose thread runs the calls of other threads.

    Raises ServiceError for a store that can't be opened, or that no other process can read.
    """

    def __init__(self, settings: Settings) -> None:
        if not store_kind(settings.store).is_lasting:
            raise ServiceError(
                f"{without_credentials(settings.store)} is lost with its process, so it holds no "
                "users; name the store of the service with --store sqlite:///PATH or redis://HOST"
            )
        path = settings.store.partition(":///")[2] if settings.store.startswith("sqlite:") else ""
        if path and not Path(path).is_file():
            raise ServiceError(
                f"{path} is no file, so it holds no users; name the store that the service writes"
            )
        self.settings = settings.model_copy(update={"history_timeout": PATIENCE, "write_timeout": PATIENCE})
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stores = self.run(self._open())
        self.histories = Breaker(self._stores.histories, PATIENCE, PATIENCE)
        self.overlay = ItemOverlayCache(self._stores.items, PATIENCE, PATIENCE)

    async def _open(self) -> Any:
        return open_stores(self.settings)

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the store's loop, from any other thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def fresh(self, bundle: Bundle) -> FreshItems:
        """The items added, changed and withdrawn since a bundle was made. Raises ServiceError."""
        fresh, missing = self.run(self.overlay.for_answer(bundle))
        if missing:
            raise ServiceError(
                f"{without_credentials(self.settings.store)} can't be read, so changed items would be "
                "missing; start the store, or name another with --store"
            )
        return fresh

    def rules(self, bundles: Path) -> RuleSet:
        """The rules of the service: of its store, or of the folder of bundles. Raises ServiceError."""
        with TemporaryDirectory() as folder:
            if store_kind(self.settings.store).open_records is None:
                return stored_rules(bundles)

            async def read() -> bytes:
                records = open_records(self.settings, Path(folder))
                try:
                    return await records.read()
                finally:
                    await records.close()

            record = read_record(self.run(read()))
        return RuleSet() if record is None else record.routes.rules

    def users(self) -> Iterator[str]:
        """Yield each user with an event, in the order of a scan, without the sessions of strangers."""
        last = ""
        for event in self.events(*_ALWAYS):
            if event.user != last and not event.user.startswith(STRANGER):
                yield event.user
            last = event.user

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events with first <= time < last (ms), oldest first those of each user."""
        scan = self.histories.scan(first, last)
        while (events := self.run(_next(scan))) is not None:
            yield from events

    def close(self) -> None:
        """Close the store and end its loop."""
        self.run(self._stores.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(scan: AsyncIterator[Any]) -> Any:
    with suppress(StopAsyncIteration):
        return await anext(scan)
    return None


def stored_rules(bundles: Path) -> RuleSet:
    """The rules that a folder of bundles keeps for its service."""
    record = kept_record(bundles)
    return RuleSet() if record is None else record.routes.rules


class StoreUsers:
    """The users of an open store, or the `users` of a file, with their stored histories.

    The users of the store are listed once into `folder`, so that a run that goes on has the same blocks. A
    history is read when its block is.
    """

    def __init__(
        self,
        store: OpenStore,
        model: LoadedModel,
        request: RecommendRequest,
        now: int,
        folder: Path,
        rules: RuleSet,
        users: Path | None = None,
    ) -> None:
        self._store, self._model, self._request, self._now = store, model, request, now
        self._folder, self._users = folder, users
        self._reader = QueryReader(store.histories, store.overlay, store.settings, lambda: rules)
        self.count: int | None = None
        self.is_whole = users is not None and are_whole(users)

    def blocks(self, size: int) -> Iterator[Load]:
        """Users in the order of the list, or of the file."""
        blocks: Iterator[Sequence[Id]]
        blocks = self._listed(size) if self._users is None else ids_of_file(self._users, size)
        for ids in blocks:
            yield self._loader(ids)

    def _listed(self, size: int) -> Iterator[Sequence[Id]]:
        """The users of the list in blocks; the list is made if there is none, a user a line in JSON."""
        path = self._folder / "users.jsonl"
        if not path.exists():
            draft = path.with_suffix(".new")
            with draft.open("wb") as file:
                for user in self._store.users():
                    file.write(orjson.dumps(user, option=orjson.OPT_APPEND_NEWLINE))
            draft.rename(path)
        with path.open("rb") as file:
            self.count, self.is_whole = 0, True
            for line in file:
                self.count += 1
                self.is_whole = self.is_whole and is_canonical_integer(orjson.loads(line))
        with path.open("rb") as file:
            for lines in in_blocks(file, size):
                yield [orjson.loads(line) for line in lines]

    def _loader(self, ids: Sequence[Id]) -> Callable[[], QueryBlock]:
        return lambda: QueryBlock(ids, self._queries(ids))

    def _queries(self, ids: Sequence[Id]) -> list[Query]:
        queries: list[Query] = []
        for users in in_blocks(ids, BATCH_LIMIT):
            requests = [self._request.model_copy(update={"user_id": user}) for user in users]
            queries += self._read(requests)
        # The first call reads a bounded number of events of all; users whose histories it cut are read alone.
        for place, query in enumerate(queries):
            if query.degraded:
                (queries[place],) = self._read([query.request])
                if queries[place].degraded:
                    raise DataError(f"the history of user {ids[place]!r} can't be read to its end; try again")
        return queries

    def _read(self, requests: Sequence[RecommendRequest]) -> list[Query]:
        try:
            return self._store.run(self._reader.read_all(requests, self._model, self._now))
        except HistoryUnavailableError as error:
            raise ServiceError(f"{error}; the same command goes on from the complete parts") from None
