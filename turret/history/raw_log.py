"""Raw events as prepared data, for as long as they are read: this needs Polars, which a service lacks."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turret.data.configuration import load_configuration
from turret.data.events.dropped_rows import headline_of
from turret.data.object_stores.place import Place
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig


@contextmanager
def prepared_log(
    source: Place | str, settings: Mapping[str, Any], report: Callable[[str], object]
) -> Iterator[PreparedData]:
    """Prepare `source` with `settings` by their dotted names, and report the rows that were left out."""
    config = load_configuration(PrepareConfig, overrides={**settings, "source": source})
    with tempfile.TemporaryDirectory(prefix="turret-") as work:
        prepared = prepare(config, Path(work) / "prepared")
        for headline in headline_of(prepared.manifest):
            report(headline)
        yield PreparedData.open(prepared.folder)
