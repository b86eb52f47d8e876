"""The function behind `turret publish`."""

import os
from pathlib import Path

from turret.tower.commands import print_note, print_version
from turret.tower.engines.access import URL_VARIABLE
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.errors import EngineError
from turret.tower.format.listing import bundle_folder


def publish_bundle(bundle: Path, url: str | None, recall: float, version: str | None, as_json: bool) -> None:
    """Publish a version of `bundle` (a bundle, or a folder whose current one is meant) on an engine.

    Raises EngineError when none is named, and as `publish_to_engine`.
    """
    url = url or os.environ.get(URL_VARIABLE)
    if not url:
        raise EngineError(
            "no engine is named: add --engine redis://HOST:6379 or --engine milvus://HOST:19530, or set "
            f"{URL_VARIABLE}"
        )
    print_version(publish_to_engine(bundle_folder(bundle), url, recall, version, print_note), as_json)
