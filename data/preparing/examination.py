"""The examination of the places of prepared events, and its file `examination.npy`."""

from pathlib import Path

import numpy as np
import polars as pl

from turret.data.answers.examination import (
    COUNT,
    LEAST_OUTCOMES,
    WEIGHT,
    Examination,
    examination_of,
    weights_of_shown,
)
from turret.data.answers.log import damage_told, read_answers
from turret.data.answers.places import PLACE
from turret.data.histories.histories import Block, Histories


def write_examination(folder: Path, answers: Path, histories: Histories) -> str:
    """Write the examination of places that the answer log shows, and return a sentence about it."""
    with damage_told(answers):
        shown = weights_of_shown(read_answers(answers))
    examination = _estimated(histories, shown)
    if examination is None:
        return (
            f"the examination of places is unknown: fewer than two places have {LEAST_OUTCOMES} outcomes of "
            "explored items; log for longer, or explore more places"
        )
    np.save(folder / "examination.npy", examination.relative, allow_pickle=False)
    return str(examination)


def _estimated(histories: Histories, shown: pl.DataFrame) -> Examination | None:
    """Estimate the examination of the places of the targets in `histories`; `shown` are `weights_of_shown`.

    The targets may be those of a part of the time of the answers, if items were explored alike in all of it.
    """

    def sums(block: Block) -> tuple[pl.DataFrame, int]:
        events = block.events
        assert events.places is not None
        assert events.propensities is not None
        is_chosen = (events.propensities < 1) & events.are_of(histories.targets)  # NaN is no propensity
        weights = 1 / events.propensities[is_chosen].astype(np.float64)
        rows = pl.DataFrame(
            {"row": events.items[is_chosen], PLACE: events.places[is_chosen], WEIGHT: weights}
        )
        grouped = rows.group_by("row", PLACE).agg(pl.col(WEIGHT).sum(), pl.len().alias(COUNT))
        return grouped, int(events.places.max(initial=0))

    blocks = list(histories.by_block(sums))
    outcomes = pl.concat([table for table, _ in blocks]).group_by("row", PLACE).sum()
    names = [str(item) for item in histories.items.ids(outcomes["row"].to_list())]
    named = outcomes.with_columns(item=pl.Series(names, dtype=pl.String))
    return examination_of(shown, named, max(places for _, places in blocks))
