"""The output of `turret index` and `turret publish`."""

import json
import sys
from pathlib import Path

from turret.data.text import figure, text_table
from turret.tower.config import RECALL_MINIMUM
from turret.tower.format.manifest import Manifest, read_manifest


def print_note(line: str) -> None:
    """Print a line beside the result."""
    print(line, file=sys.stderr, flush=True)


def print_version(target: Path, as_json: bool) -> None:
    """Print the index of a new version and its recall, for people or as JSON."""
    manifest = read_manifest(target)
    if as_json:
        shown = manifest.model_dump(mode="json", include={"version", "index", "index_choice", "recall"})
        print(json.dumps({"bundle": str(target), **shown}, indent=2))
    else:
        for words in manifest.index_choice.words if manifest.index_choice else ():
            print(f"{words[:1].upper()}{words[1:]}.")
        print(f"Recall against exact search, on real user vectors:\n{_recall_table(manifest)}\n{target}")
    lowest = min((cell.recall for cell in manifest.recall), default=1.0)
    if lowest < RECALL_MINIMUM and not manifest.index.is_exact:
        print_note(
            f"`turret activate` refuses a recall of {lowest:.4f}, unless TURRET_RECALL_MINIMUM "
            f"({RECALL_MINIMUM:g}) is lower there and in the service; or index again with "
            f"--recall {RECALL_MINIMUM:g}"
        )


def _recall_table(manifest: Manifest) -> str:
    """A text table with one line for each share of allowed items and one column for each k."""
    ks = sorted({cell.k for cell in manifest.recall})
    shares = sorted({cell.selectivity for cell in manifest.recall}, reverse=True)
    figures = {(cell.selectivity, cell.k): figure(cell.recall) for cell in manifest.recall}
    return text_table(
        ("items allowed", *(f"k = {k:,}" for k in ks)),
        ((f"{100 * share:g} %", *(figures.get((share, k), "") for k in ks)) for share in shares),
    )
