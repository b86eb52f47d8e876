"""The report of `prepare`, and messages about the rows that are no events."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turret.data.errors import BadRowsError
from turret.data.manifest import BadRows, DataManifest, Removed
from turret.data.progress import counted

OnBad = Literal["error", "drop", "drop=any"]
UNREADABLE_TIME, NO_KIND = "unreadable time", "missing kind"
UNREADABLE_WEIGHT, UNREADABLE_QUANTITY = "unreadable weight", "unreadable quantity"
UNKNOWN_VALUE = "value without a kind"
WRONG_CLOCK = "time before 1990 or in the future"
INEXACT = "too large for a float to hold exactly"
ROUNDED = "rounded by a spreadsheet"
UNKNOWN_ITEM = "item not in the items file"
ENTITY_FILES = ("items file: ", "users file: ")  # the prefixes of kinds of bad rows outside of the log
REPEATED_ID = "repeated id"
_NO_USER = "null user"
_WIDTH = 60
_FILES = 4


@dataclass(frozen=True)
class PrepareReport:
    """The output of `prepare`; `warnings` has a sentence on each choice and on each surprise.

    `doubts` are the warnings about rows that were read as events and may be none, or may have other ids.
    """

    folder: Path
    manifest: DataManifest
    warnings: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class CheckedRows:
    """The rows of the log, or of another table: its files, the number of valid rows, and the bad rows.

    `doubtful` counts the valid rows that are the first of several rows of one id.
    """

    files: Sequence[Path]
    valid: int
    bad_rows: Sequence[BadRows]
    doubtful: int = 0

    @property
    def bad(self) -> int:
        """The number of rows that are not valid."""
        return sum(bad.count for bad in self.bad_rows)


def refuse_bad_rows(tables: Sequence[CheckedRows], on_bad: OnBad, note: str = "") -> None:
    """Raise BadRowsError with files, kinds, counts and examples of bad rows that are not to be dropped.

    "drop" drops at most half of a table: more bad rows rather mean that a column or a file was named by
    mistake. `note` is a line after the examples.
    """
    most = [table for table in tables if table.bad + table.doubtful > table.valid - table.doubtful]
    refused = {"error": [table for table in tables if table.bad], "drop": most, "drop=any": []}[on_bad]
    if refused:
        bad_rows = [bad for table in refused for bad in table.bad_rows]
        count, total = sum(table.bad for table in refused), sum(table.bad + table.valid for table in refused)
        files = [file for table in refused for file in table.files]
        verb = "is" if count == 1 else "are"
        lines = [
            f"{count:,} of {counted(total, 'row')} of {names_of(files)} {verb} not valid:",
            *bad_row_lines(bad_rows),
            *([note] if note else []),
            "; ".join(
                [
                    *_hints(bad_rows),
                    "correct them, or drop them with --on-bad "
                    + ("drop=any, as they concern more than half of the rows" if most else "drop"),
                ]
            ),
        ]
        raise BadRowsError("\n".join(lines))


def names_of(files: Sequence[Path]) -> str:
    """List the first files, and count the others."""
    rest = f" and {len(files) - _FILES:,} other files" if len(files) > _FILES else ""
    return ", ".join(map(str, files[:_FILES])) + rest


def bad_row_lines(bad_rows: Sequence[BadRows]) -> list[str]:
    """Return one line per kind, the most frequent first, and one per example."""
    lines = []
    for bad in sorted(bad_rows, key=lambda bad: -bad.count):
        lines.append(f"  {bad.kind}: {bad.count:,}")
        lines += [f"    {_example(example)}" for example in bad.examples]
    return lines


def describe_dropped(bad_rows: Sequence[BadRows], removed: Sequence[Removed]) -> str:
    """List the numbers of rows dropped by kind and by filter, the largest first."""
    counts = [(bad.count, bad.kind) for bad in bad_rows]
    counts += [(filtered.events, f"filter {filtered.filter}") for filtered in removed]
    listed = (f"{kind} ({count:,})" for count, kind in sorted(counts, key=lambda pair: -pair[0]))
    return "; ".join([", ".join(listed) or "the source has no rows", *_hints(bad_rows, removed)])


def headline_of(manifest: DataManifest) -> list[str]:
    """Say how many rows of the log were dropped, and why; empty for none."""
    bad_rows = [bad for bad in manifest.bad_rows if not bad.kind.startswith(ENTITY_FILES)]
    dropped = sum(bad.count for bad in bad_rows) + sum(filtered.events for filtered in manifest.removed)
    if not dropped:
        return []
    total = dropped + manifest.counts.events + (manifest.negatives or 0)
    reasons = describe_dropped(bad_rows, manifest.removed)
    return [f"dropped: {dropped:,} of {counted(total, 'row')} of the log ({dropped / total:.1%}): {reasons}"]


def _hints(bad_rows: Sequence[BadRows], removed: Sequence[Removed] = ()) -> list[str]:
    hints = {
        UNREADABLE_TIME: "give the formats of dates with --time-format, such as '%d %b %Y %H:%M' "
        "or '%d-%m-%Y %I:%M %p'",
        UNREADABLE_WEIGHT: "state the decimal mark of numbers with --decimal",
        UNREADABLE_QUANTITY: "state the decimal mark of numbers with --decimal",
        WRONG_CLOCK: "state --time-unit or --time-format if times before 1990 are right",
        NO_KIND: "`--default-kind` of `turret data prepare` or `append` gives them a kind",
        REPEATED_ID: "of the rows of one id dropping keeps the first alone, so give a file of one row an id, "
        "with a column for each property",
        UNKNOWN_VALUE: "give each value a kind in the kinds of its source, perhaps an ignored one",
        INEXACT: "export such ids as integers or texts",
        ROUNDED: "export them from the source itself, or format the column as text before saving it",
    }
    kinds = [*(bad.kind for bad in bad_rows), *(filtered.filter for filtered in removed)]
    blanks = [[*row.values()].count(None) for bad in bad_rows for row in bad.examples if bad.kind == _NO_USER]
    hints[_NO_USER] = "if an order has them in its first row alone, fill the cells below from it"
    if not blanks or min(blanks) < 2:
        del hints[_NO_USER]
    return [hint for end, hint in hints.items() if any(kind.endswith(end) for kind in kinds)]


def _example(example: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {'null' if value is None else _short(value)}" for name, value in example.items()
    )


def _short(value: object) -> str:
    text = str(value)
    text = text if text == text.strip() else repr(text)  # repr shows blanks and control characters
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "..."
