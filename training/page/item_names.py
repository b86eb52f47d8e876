"""Items as people know them: by a title of the catalog, if it has one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from turret.data.prepared import PreparedData

TITLES = ("title", "name", "item_name", "product_name", "label", "description")
# Texts that several items share are no titles.
_DISTINCT, _SAMPLED = 0.5, 1000
_LONGEST, _MOST_DETAILS = 100, 3


@dataclass(frozen=True)
class NamedItem:
    """An item with its title, None without one, the first of its other fields as text, and some of them."""

    id: int | str
    title: str | None
    detail: str
    details: str


class ItemNames:
    """Names the items of prepared data."""

    def __init__(self, data: PreparedData) -> None:
        """Find the field that holds titles."""
        self._data = data
        self.title_field = _title_field(data.fields)

    def item(self, row: int) -> NamedItem:
        """Name one item row."""
        fields = self._data.fields
        title = None if self.title_field is None else _text(fields[self.title_field][row])
        texts = [_text(values[row]) for name, values in fields.items() if name != self.title_field]
        others = [text for text in texts if text][:_MOST_DETAILS]
        return NamedItem(self._data.item_ids.id(row), title or None, "".join(others[:1]), " · ".join(others))

    def items(self, rows: Iterable[int]) -> list[NamedItem]:
        """Name several item rows, in their order."""
        return [self.item(int(row)) for row in rows]


def _title_field(fields: dict[str, list[Any]]) -> str | None:
    """A text field with the usual name of a title, else the first one with mostly distinct texts."""
    texts = [name for name, values in fields.items() if _is_text(values)]
    usual = [name for known in TITLES for name in texts if name.lower() == known]
    distinct = [name for name in texts if _distinct_share(fields[name]) > _DISTINCT]
    return next(iter([*usual, *distinct]), None)


def _is_text(values: Sequence[Any]) -> bool:
    known = [value for value in values[:_SAMPLED] if value is not None]
    return bool(known) and all(isinstance(value, str) for value in known)


def _distinct_share(values: Sequence[Any]) -> float:
    known = [value for value in values[:_SAMPLED] if value is not None]
    return len(set(known)) / len(known)


def _text(value: Any) -> str:
    """A value of the catalog as one short line."""
    if value is None:
        return ""
    listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(listed[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
