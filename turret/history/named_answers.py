"""The ids of answers that the events of a log name, which prepared data does not keep."""

from collections.abc import Sequence

import polars as pl

from turret.data.events.log import Log
from turret.data.kinds import row_codes
from turret.data.progress import counted
from turret.history.loading import EventKey

_FORM = "^[0-9a-f]{32}$"  # of the ids in `data.answers.form`


class NamedAnswers:
    """The answers that the events of a log name; `wrong` counts those with a text that is no id."""

    def __init__(self, log: Log) -> None:
        """Read the log. One without times names none: a position in a history is no time of an event."""
        rows = log.named_answers() if log.time.kind == "timestamp" else log.named_answers().clear()
        is_id = pl.col("answer").str.contains(_FORM)
        self._rows = rows.filter(is_id).sort("user", maintain_order=True)
        self.wrong = rows.height - self._rows.height
        self._names = {code: name for name, code in row_codes(log.kinds).items()}

    def __len__(self) -> int:
        return self._rows.height

    def of(self, users: Sequence[str]) -> dict[EventKey, list[str]]:
        """Return the answers of the events of some users, those of equal events in the order of the log."""
        named: dict[EventKey, list[str]] = {}
        if self._rows.is_empty():
            return named
        chosen = self._rows.join(pl.DataFrame({"user": users}), on="user", how="semi", maintain_order="left")
        for user, item, time, code, answer in chosen.iter_rows():
            key = (user, item, time, None if code is None else self._names[code])
            named.setdefault(key, []).append(answer)
        return named

    def sentences(self) -> list[str]:
        """Describe the ids, for people; empty for a log without any."""
        wrong = (
            f"{counted(self.wrong, 'event')} with a text for an answer that is not 32 hexadecimal digits, as "
            "ids of answers are: loaded without it"
        )
        named = f"{counted(len(self), 'event')} with the id of an answer"
        return [named] * (len(self) > 0) + [wrong] * (self.wrong > 0)
