"""From a log of events to the memory-mapped folder that training reads."""

from pathlib import Path

import numpy as np
import polars as pl

from data.features import Features
from data.folder import published_folder, write_arrays, write_catalogues
from data.manifest import Columns, Counts, Manifest, Split, Time, fingerprint, hash_files
from data.packing import Events
from data.sequences import PARTS, PreparedData
from data.splits import last_out
from data.vocabulary import Vocabulary


def prepare_frame(frame: pl.DataFrame, target: Path, overwrite: bool = False) -> PreparedData:
    """Prepare a frame of `user_id`, `item_id`, `timestamp` (integers)."""
    users = Vocabulary(sorted(frame["user_id"].unique()))
    items = Vocabulary(sorted(frame["item_id"].unique()))
    events = Events(
        users=users.known_rows(frame["user_id"])[0],
        items=items.known_rows(frame["item_id"])[0],
        times=frame["timestamp"].to_numpy().astype(np.int64),
    ).in_order()
    offsets = events.offsets(len(users))
    splits = last_out(offsets)
    fields = {
        name: frame.group_by("item_id").agg(pl.col(name).first()).sort("item_id")[name].to_list()
        for name in frame.columns
        if name not in {"user_id", "item_id", "timestamp"}
    }
    with published_folder(target, overwrite) as folder:
        write_arrays(folder, events, offsets, splits)
        empty = (Features(len(users), (), {}), Features(len(items), (), {}))
        write_catalogues(folder, users, items, *empty, fields)
        files = hash_files(folder)
        edges = np.column_stack([offsets[:-1], splits, offsets[1:]])
        lengths = np.diff(edges, axis=1)
        Manifest(
            counts=Counts(events=len(events), users=len(users), items=len(items)),
            columns=Columns(user="user_id", item="item_id", time="timestamp"),
            sources={},
            filters={},
            bad_rows=[],
            removed=[],
            time=Time(kind="number", unit=None, first=int(events.times.min()), last=int(events.times.max())),
            split=Split(
                kind="last",
                rule="",
                events=dict(zip(PARTS, lengths.sum(axis=0).tolist(), strict=True)),
                users=dict(zip(PARTS, (lengths > 0).sum(axis=0).tolist(), strict=True)),
            ),
            has_weights=False,
            user_features=[],
            item_features=[],
            files=files,
            fingerprint=fingerprint(files, "number"),
        ).save(folder)
    return PreparedData.open(target)
