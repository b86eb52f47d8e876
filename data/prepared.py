"""Prepared data: memory-mapped histories, split into parts."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.configuration import DisplaySettings
from turret.data.errors import DataError, path_of, system_errors_told
from turret.data.features.columns import Features, VectorRows
from turret.data.features.texts import QUERY, text_of
from turret.data.files import open_array
from turret.data.kinds import read_kinds, target_codes
from turret.data.manifest import DataManifest, hash_file
from turret.data.ranges import ranges
from turret.data.vocabulary import Id, Vocabulary

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
HistoryEnd = Literal["validation", "test", "end"]

CONTEXT_FEATURES, CONTEXTS = "context_features", "contexts.json"
LOOSE = "loose_negatives"  # the folder of the negatives that belong to no event
COLD_ITEMS, _COLD_VECTORS = "cold_items.json", "cold_vectors.{}.npy"
_OPTIONAL = {"sessions": "int32", "places": "uint16", "propensities": "float32", "examination": "float64"}
NO_FEATURES = Features(0, (), {})
_USERS_PER_BLOCK = 65536


@dataclass(frozen=True)
class Negatives:
    """The items that were not chosen; those of event e are `items[offsets[e]:offsets[e + 1]]`.

    `items` are int32 [M], `offsets` int64 [E + 1]; `weights` are float32 [M], or None for data without
    weights. `times` [M] and `kinds` int8 [M] (`data.kinds.row_codes`) are None for data without kinds.
    """

    items: NDArray[np.int32]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    times: NDArray[Any] | None = None
    kinds: NDArray[np.int8] | None = None

    @classmethod
    def open(cls, folder: Path, manifest: DataManifest, times: str) -> "Negatives":
        """Open the negatives of prepared data, whose times have the type `times`."""
        return cls(
            open_array(folder / "negatives.npy", "int32"),
            open_array(folder / "negative_offsets.npy", "int64"),
            open_array(folder / "negative_weights.npy", "float32") if manifest.has_weights else None,
            open_array(folder / "negative_times.npy", times) if manifest.kinds else None,
            open_array(folder / "negative_kinds.npy", "int8") if manifest.kinds else None,
        )


class GivenNegatives(NamedTuple):
    """M negatives that events of negative kinds give, in any order.

    Attributes:
        owners: int64 [M], the index of the user.
        items: int64 [M], the item rows.
        times: [M], like the times of events; in data without times, the number of the user's events before
            each negative.
        kinds: int64 [M], the codes of the kinds (`data.kinds.row_codes`).
    """

    owners: NDArray[np.int64]
    items: NDArray[np.int64]
    times: NDArray[Any]
    kinds: NDArray[np.int64]


@dataclass(frozen=True)
class ColdItems:
    """Items of the catalog that have no event, which an item tower that reads features can still encode.

    There are C `ids`, and C values of each of the `features` and of the `fields`, by name. Features are raw
    values, as `Feature.encode_one` takes them. `vectors` has the vector features by name, each [C, width].
    """

    ids: list[Id] = field(default_factory=list)
    features: dict[str, list[Any]] = field(default_factory=dict)
    fields: dict[str, list[Any]] = field(default_factory=dict)
    vectors: dict[str, NDArray[Any] | VectorRows] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the items into prepared data, if there are any."""
        if not self.ids:
            return
        for number, rows in enumerate(self.vectors.values()):
            assert isinstance(rows, VectorRows)
            rows.save(folder / _COLD_VECTORS.format(number))
        named = {"vectors": [*self.vectors]} if self.vectors else {}
        stored = {"ids": self.ids, "features": self.features, "fields": self.fields, **named}
        text = json.dumps(stored, ensure_ascii=False, allow_nan=False)
        (folder / COLD_ITEMS).write_text(text, encoding="utf-8")

    def rows(self, part: slice) -> list[dict[str, Any]]:
        """Return the features of some items as `Feature.encode_one` takes them; a vector of NaN is None."""
        columns = {name: values[part] for name, values in self.features.items()}
        for name, vectors in self.vectors.items():
            assert isinstance(vectors, np.ndarray)
            columns[name] = [None if np.isnan(vector[0]) else vector for vector in vectors[part]]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    @classmethod
    def open(cls, folder: Path) -> "ColdItems":
        """Read the items of prepared data. Raises DataError for a damaged file."""
        if not (folder / COLD_ITEMS).exists():
            return cls()
        stored = _read_json(folder / COLD_ITEMS)
        vectors: dict[str, NDArray[Any] | VectorRows] = {
            name: open_array(folder / _COLD_VECTORS.format(number), "float16", "float32")
            for number, name in enumerate(stored.pop("vectors", []))
        }
        return cls(**stored, vectors=vectors)


@dataclass(frozen=True)
class PreparedData:
    """The output of `turret data prepare`; the arrays are memory maps, so only used pages are read.

    With U users, N items and E events: `event_items` int32 [E] are item rows, all events sorted by user row,
    then part, then time; `offsets` int64 [U + 1] are the users' bounds in it; `times` [E] is int64 (or
    float64 for a fractional order column), and `weights` float32 [E] or None. `splits` int64 [U, 2] holds the
    ends of the train and of the validation part: user u's events are train in [offsets[u], splits[u, 0]),
    validation in [splits[u, 0], splits[u, 1]) and test in [splits[u, 1], offsets[u + 1]). `fields` has one
    list of N values for each item column kept for answers. `negatives` are None for data without them.
    `kinds` int8 [E] are codes of the manifest's kinds (`data.kinds.read_kinds`), None where all events are
    alike; events of kinds that are no targets are read in histories, and are never a next item. `sessions`
    int32 [E] number the sessions of each user from 0, -1 for an event without one; None for a log that names
    no sessions. `places` uint16 [E] (from 1, 0 for none) and `propensities` float32 [E] (NaN for none) are
    those of the item in the answer that led to the event; None for data without an answer log. `examination`
    float64 [K] is that of the places 1 to K, relative to one of them; None where it is unknown. `contexts`
    int32 [E] are rows of `context_features`, the features of the distinct contexts, of which row 0 is the
    unknown one; None for a log without them. `train_ends` int64 [U] are the ends of the train part where they
    are not `splits[:, 0]`.
    """

    folder: Path
    manifest: DataManifest
    event_items: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times: NDArray[Any]
    weights: NDArray[np.float32] | None
    splits: NDArray[np.int64]
    users: Vocabulary
    item_ids: Vocabulary
    user_features: Features
    item_features: Features
    fields: dict[str, list[Any]]
    negatives: Negatives | None = None
    kinds: NDArray[np.int8] | None = None
    sessions: NDArray[np.int32] | None = None
    places: NDArray[np.uint16] | None = None
    propensities: NDArray[np.float32] | None = None
    examination: NDArray[np.float64] | None = None
    train_ends: NDArray[np.int64] | None = None
    contexts: NDArray[np.int32] | None = None
    context_features: Features = NO_FEATURES

    @classmethod
    def open(cls, folder: Path) -> "PreparedData":
        """Open a prepared folder. Raises DataError for another folder, and for missing or resized files."""
        with system_errors_told():
            folder = path_of("folder", folder)
            manifest = DataManifest.load(folder)
            for name, expected in manifest.files.items():
                path = folder / name
                if not path.is_file() or path.stat().st_size != expected.bytes:
                    raise DataError(
                        f"{path} is missing or does not have {expected.bytes} bytes; prepare the data again"
                    )
            times = "float64" if isinstance(manifest.time.first, float) else "int64"
            dtypes = {"items": "int32", "offsets": "int64", "times": times, "splits": "int64"}
            dtypes |= {"weights": "float32"} if manifest.has_weights else {}
            dtypes |= {"kinds": "int8"} if manifest.kinds else {}
            dtypes |= {name: dtype for name, dtype in _OPTIONAL.items() if f"{name}.npy" in manifest.files}
            dtypes |= {"contexts": "int32"} if manifest.context_features else {}
            arrays = {name: open_array(folder / f"{name}.npy", dtype) for name, dtype in dtypes.items()}
            return cls(
                folder=folder,
                manifest=manifest,
                event_items=arrays["items"],
                offsets=arrays["offsets"],
                times=arrays["times"],
                weights=arrays.get("weights"),
                splits=arrays["splits"],
                users=Vocabulary.load(folder / "users.json"),
                item_ids=Vocabulary.load(folder / "items.json"),
                user_features=Features.open(folder / "user_features"),
                item_features=Features.open(folder / "item_features"),
                fields=_read_json(folder / "catalogue.json")["fields"],
                negatives=None if manifest.negatives is None else Negatives.open(folder, manifest, times),
                kinds=arrays.get("kinds"),
                **{name: arrays.get(name) for name in _OPTIONAL},
                contexts=arrays.get("contexts"),
                context_features=(
                    Features.open(folder / CONTEXT_FEATURES) if manifest.context_features else NO_FEATURES
                ),
            )

    @property
    def display(self) -> DisplaySettings:
        """The fields of items that people see."""
        return DisplaySettings.model_validate(self.manifest.settings.get("display", {}))

    @property
    def fingerprint(self) -> str:
        """The content's SHA-256; see `DataManifest.fingerprint`."""
        return self.manifest.fingerprint

    @property
    def has_queries(self) -> bool:
        """Whether the users are queries, which have a text and no history: see `data.reading.queries`."""
        return self.manifest.split.kind == "queries"

    @property
    def holds_baskets(self) -> bool:
        """Whether the users are baskets: see `training.batches.baskets`."""
        return self.train_ends is not None

    def query_groups(self) -> NDArray[np.int64] | None:
        """Return the number of each query's answer, int64 [U], if items are questions that may share answers.

        None where items are answers, or users have histories.
        """
        settings = self.manifest.settings.get("queries")
        if not settings or settings.get("match") != "questions":
            return None
        if "answer" not in self.fields:  # the answer is left out of the fields
            return None
        _, answers = np.unique([str(answer) for answer in self.fields["answer"]], return_inverse=True)
        return np.asarray(answers[self.event_items[self.offsets[:-1]]], dtype=np.int64)

    def are_targets(self, positions: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Tell which events at `positions` [P] may be a next item: bool [P]."""
        if self.kinds is None:
            return np.ones(len(self.event_items[positions]), dtype=np.bool_)
        is_target = np.zeros(len(self.manifest.kinds) + 1, dtype=np.bool_)
        is_target[target_codes(self.manifest.kinds)] = True
        return is_target[self.kinds[positions]]

    def only_targets(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions among `positions` [P] whose events may be a next item."""
        return positions if self.kinds is None else positions[self.are_targets(positions)]

    def history_ends(self, until: HistoryEnd) -> NDArray[np.int64]:
        """Return the end [U] of each user's history in `event_items`; a query has none.

        The history for a part's targets ends at the first target of the part: signals before it are read.
        """
        if self.has_queries:
            return self.offsets[:-1]
        if until == "end":
            return self.offsets[1:]
        return self._first_targets[until] if self.kinds is not None else self.bounds(until)[0]

    @cached_property
    def _first_targets(self) -> dict[Part, NDArray[np.int64]]:
        """The first target [U] of each part after training, or the first event where the part has none."""
        result: dict[Part, NDArray[np.int64]] = {}
        for part in PARTS[1:]:
            starts, ends = self.bounds(part)
            firsts = self.first_targets(starts, ends)
            result[part] = np.where(firsts < ends, firsts, starts)
        return result

    def first_targets(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of the first target from `starts` [U] before `ends` [U]; `ends` for none."""
        if self.kinds is None:
            return np.minimum(starts, ends)
        targets = np.append(np.flatnonzero(self.are_targets(slice(None))), len(self.event_items))
        firsts: NDArray[np.int64] = np.minimum(targets[np.searchsorted(targets, starts)], ends)
        return firsts

    def history(self, user: int, until: HistoryEnd) -> NDArray[np.int32]:
        """Return the item rows [T] of `user` (a row) before `until`, oldest first; "end" gives all."""
        return self.event_items[self.offsets[user] : self.history_ends(until)[user]]

    def user_values(self, user: int) -> dict[str, Any]:
        """Return the features of `user` (a row) as a request has them, with the text of a query."""
        values = self.user_features.raw(user)
        return {QUERY: self.query_text(user), **values} if self.has_queries else values

    def request_contexts(self, users: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the assumed contexts of requests by `users` [S] after their events up to `ends` [S]: [S].

        A request has the context of the user's next event; after the last event, that of the last one.
        """
        assert self.contexts is not None
        return self.contexts[np.minimum(ends, self.offsets[users + 1] - 1)].astype(np.int64)

    def context_values(self, user: int, end: int) -> dict[str, Any]:
        """Return the context of a request by `user` (a row) after the events up to `end`, as it is sent."""
        if self.contexts is None:
            return {}
        (row,) = self.request_contexts(np.array([user]), np.array([end])).tolist()
        return self.context_features.raw(row) if row else {}

    def query_text(self, user: int) -> str:
        """Return the text of a query (a row)."""
        return text_of(self.users.id(user))

    def targets(self, user: int, part: Part) -> NDArray[np.int32]:
        """Return the item rows of the targets of `user` (a row) in `part`, oldest first."""
        starts, ends = self.bounds(part)
        return self.event_items[self.only_targets(np.arange(starts[user], ends[user]))]

    def bounds(self, part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the starts [U] and the ends [U] of `part` in `event_items`, by user row."""
        edges = (self.offsets[:-1], self.splits[:, 0], self.splits[:, 1], self.offsets[1:])
        index = PARTS.index(part)
        if part == "train" and self.train_ends is not None:
            return edges[0], self.train_ends
        return edges[index], edges[index + 1]

    @cached_property
    def _loose(self) -> list[NDArray[Any]]:
        """The users (ascending), items, times and kinds of the negatives that belong to no event."""
        names = {"users": "int32", "items": "int32", "times": self.times.dtype.name, "kinds": "int8"}
        return [open_array(self.folder / LOOSE / f"{name}.npy", dtype) for name, dtype in names.items()]

    def given_negatives(self, users: NDArray[np.int64], ends: NDArray[np.int64]) -> GivenNegatives:
        """Return the negatives of `users` [U] before and with their events at `ends` [U].

        At the end of a history, these are all negatives of the user; in data without kinds, there are none.
        """
        negatives = self.negatives
        if negatives is None or negatives.times is None or negatives.kinds is None:
            none = np.empty(0, dtype=np.int64)
            return GivenNegatives(none, none, none, none)
        firsts = negatives.offsets[self.offsets[users]]
        counts = negatives.offsets[np.minimum(ends + 1, self.offsets[users + 1])] - firsts
        places = ranges(firsts, counts)
        others, *columns = self._loose
        firsts, lasts = np.searchsorted(others, users), np.searchsorted(others, users, "right")
        owners, loose = np.repeat(np.arange(len(users)), lasts - firsts), ranges(firsts, lasts - firsts)
        is_over = (ends == self.offsets[users + 1])[owners]
        latest = self.times[np.minimum(ends, len(self.times) - 1)][owners]
        is_before = is_over | (columns[1][loose] <= latest)
        owners, loose = (
            np.append(np.repeat(np.arange(len(users)), counts), owners[is_before]),
            loose[is_before],
        )
        attached: list[NDArray[Any]] = [negatives.items, negatives.times, negatives.kinds]
        both = zip(attached, columns, strict=True)
        items, times, kinds = (np.append(values[places], other[loose]) for values, other in both)
        return GivenNegatives(owners, items.astype(np.int64), times, kinds.astype(np.int64))

    def item_counts(self, part: Part = "train") -> NDArray[np.int64]:
        """Return the number of targets of each item in `part`, int64 [N]: its popularity."""
        counts = np.zeros(len(self.item_ids), dtype=np.int64)
        starts, ends = self.bounds(part)
        for first in range(0, len(self.users), _USERS_PER_BLOCK):
            block = slice(first, first + _USERS_PER_BLOCK)
            events = self.only_targets(ranges(starts[block], ends[block] - starts[block]))
            counts += np.bincount(self.event_items[events], minlength=len(counts))
        return counts

    def cold_items(self) -> ColdItems:
        """Return the items of the catalog with features and no event. Raises DataError for a damaged file."""
        return ColdItems.open(self.folder)

    def verify(self) -> None:
        """Check the SHA-256 of every file. Raises DataError naming the first file that differs."""
        for name, expected in self.manifest.files.items():
            if hash_file(self.folder / name) != expected:
                raise DataError(
                    f"{self.folder / name} has changed since it was prepared; prepare the data again"
                )


def look_up(
    folder: Path, user: str | None, limit: int
) -> tuple[list[Id], list[dict[str, Any]], list[str | None]]:
    """Return the ids, the catalog fields and the kinds of the newest `limit` items of `user`, oldest first.

    Without `user`, these are the items of a user of median activity. Raises DataError when there is no such
    user.
    """
    data = PreparedData.open(folder)
    median = int(np.argsort(np.diff(data.offsets), kind="stable")[len(data.users) // 2])
    row = median if user is None else data.users.row(user)
    if row is None:
        examples = ", ".join(map(str, data.users.ids(range(min(3, len(data.users))))))
        raise DataError(f"there is no user {user!r} in {folder}; it has users such as {examples}")
    rows = data.history(row, "end")[-limit:].tolist()
    fields = [{name: column[item] for name, column in data.fields.items()} for item in rows]
    kinds: list[str | None] = [None] * len(rows)
    if data.kinds is not None and rows:
        names = read_kinds(data.manifest.kinds)
        kinds = [names[code] for code in data.kinds[data.offsets[row] : data.offsets[row + 1]][-limit:]]
    return data.item_ids.ids(rows), fields, kinds


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read ({error}); prepare the data again") from None
