"""What is known of the items beside their vectors: the fields that answers show."""

import json
from pathlib import Path
from typing import Any

from tower.errors import BundleError


class Catalog:
    """Fields such as titles and genres, one value a row in each."""

    def __init__(self, fields: dict[str, list[Any]]) -> None:
        self.fields = fields

    @classmethod
    def load(cls, path: Path, count: int) -> "Catalog":
        """Read `catalogue.json`: `{"fields": {name: [a value a row]}}`.

        Raises BundleError when it is anything else or a field doesn't have `count` values.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))["fields"]
            lengths = {name: len(values) for name, values in fields.items() if isinstance(values, list)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BundleError(f"{path} is not a catalogue ({error!r}); export the bundle again") from None
        for name in fields:
            if lengths.get(name) != count:
                raise BundleError(
                    f"field {name!r} of {path} has {lengths.get(name)} values for {count} items"
                )
        return cls(fields)

    def save(self, path: Path) -> None:
        """Write `catalogue.json`."""
        path.write_text(json.dumps({"fields": self.fields}, ensure_ascii=False), encoding="utf-8")

    def of(self, row: int) -> dict[str, Any]:
        """Return the fields of one item."""
        return {name: values[row] for name, values in self.fields.items()}

    def json_of(self, row: int) -> bytes:
        """Return the fields of one item as JSON."""
        return json.dumps(self.of(row), ensure_ascii=False).encode()
