"""The report of `prepare`, and messages about the rows that are no events."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.data.errors import BadRowsError
from turret.data.manifest import BadRows, Manifest, Removed
from turret.data.progress import counted

UNREADABLE_TIME, NO_KIND = "unreadable time", "missing kind"
WRONG_CLOCK = "time before 1990 or in the future"
UNKNOWN_ITEM = "item not in the items file"
_WIDTH = 60
_FILES = 4


@dataclass(frozen=True)
class PrepareReport:
    """The output of `prepare`; `warnings` has a sentence on each choice that it made, and each surprise."""

    folder: Path
    manifest: Manifest
    warnings: tuple[str, ...]


def refuse_bad_rows(bad_rows: Sequence[BadRows], files: Sequence[Path], note: str = "") -> None:
    """Raise BadRowsError with the files, kinds, counts and examples, and a note, if there are any."""
    if bad_rows:
        total = sum(bad.count for bad in bad_rows)
        lines = [
            f"{counted(total, 'row')} of {names_of(files)} {'is' if total == 1 else 'are'} not valid:",
            *bad_row_lines(bad_rows),
            *([note] if note else []),
            f"correct them, or drop them with --on-bad drop{_hint(bad_rows)}",
        ]
        raise BadRowsError("\n".join(lines))


def names_of(files: Sequence[Path]) -> str:
    """List the first of some files."""
    rest = f" and {len(files) - _FILES:,} other files" if len(files) > _FILES else ""
    return ", ".join(map(str, files[:_FILES])) + rest


def bad_row_lines(bad_rows: Sequence[BadRows]) -> list[str]:
    """Return one line per kind and one per example."""
    lines = []
    for bad in bad_rows:
        lines.append(f"  {bad.kind}: {bad.count:,}")
        lines += [f"    {_example(example)}" for example in bad.examples]
    return lines


def describe_dropped(bad_rows: Sequence[BadRows], removed: Sequence[Removed]) -> str:
    """List the numbers of rows dropped by kind and by filter."""
    counts = [f"{bad.kind} ({bad.count:,})" for bad in bad_rows]
    counts += [f"filter {filtered.filter} ({filtered.events:,})" for filtered in removed]
    return (", ".join(counts) or "the source has no rows") + _hint(bad_rows, removed)


def _hint(bad_rows: Sequence[BadRows], removed: Sequence[Removed] = ()) -> str:
    hints = {
        UNREADABLE_TIME: "give the formats of dates with --time-format",
        WRONG_CLOCK: "state --time-unit or --time-format if such times are right",
        NO_KIND: "`--default-kind` of `turret data prepare` or `append` gives them a kind",
    }
    kinds = {bad.kind for bad in bad_rows} | {one.filter for one in removed}
    return "".join(f"; {hint}" for kind, hint in hints.items() if kind in kinds)


def _example(example: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {'null' if value is None else _short(value)}" for name, value in example.items()
    )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "..."
