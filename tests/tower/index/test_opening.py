"""An index kind of a third party: proposed, measured, written into a bundle's manifest and opened again."""

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.plugin import install, run_with
from turret.tower.format.index_kinds import OURS

THIRD_PARTY = ROOT / "tests" / "fixtures" / "sorted_index"

USE = """
from pathlib import Path

import numpy as np

from turret.tower.catalog.masks import RowMask
from turret.tower.format.integrity import lengths_of, measure_norms
from turret.tower.format.manifest import Manifest, Scoring
from turret.tower.index.opening import open_index
from turret.tower.index.planner import Planner
from turret.tower.tuning.choice import IndexRequest, choose

vectors = np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)
queries = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
scoring = Scoring(kind="dot", temperature=1.0)
chosen = choose(vectors, queries, scoring, IndexRequest("sorted", 0.99))
path = Path("FOLDER") / "index.faiss"
chosen.made.save(path)
manifest = Manifest(
    version="v", created="now", dimension=8, item_count=3000, scoring=scoring, history_length=5,
    index=chosen.settings, index_choice=chosen.choice, recall=chosen.recall, files={},
    norms=measure_norms(lengths_of(vectors)),
)
again = Manifest.model_validate_json(manifest.model_dump_json())
index = open_index(path, vectors, again.index)
mask = np.arange(3000) % 2 == 0
planned = Planner(index, scoring).nearest(queries[0], 10, None, RowMask(mask))
print(type(index).__name__, index.settings.probes, planned.plan.kind, mask[planned.rows].all())
print(min(one.recall for one in chosen.recall))
"""


def test_a_package_adds_an_index_by_an_entry_point(tmp_path: Path) -> None:
    run = run_with(THIRD_PARTY, USE.replace("FOLDER", str(tmp_path)))
    assert run.stdout.splitlines() == ["SortedIndex 5 selector True", "1.0"], run.stderr


@pytest.mark.nightly
def test_the_contract_suite_takes_the_kinds_of_installed_packages() -> None:
    suite = [
        str(ROOT / "tests" / "contracts" / "test_indexes.py"),
        "-q",
        "-k",
        "sorted",
        "-p",
        "no:cacheprovider",
    ]
    run = run_with(THIRD_PARTY, f"import pytest; raise SystemExit(pytest.main({suite}))")
    assert run.returncode == 0, run.stdout
    assert re.search(r"^[3-9]\d passed", run.stdout, re.MULTILINE), run.stdout


def test_two_indexes_of_one_name_are_refused(tmp_path: Path) -> None:
    source = (THIRD_PARTY / "sorted_index.py").read_text(encoding="utf-8").replace('"sorted"', '"flat"')
    install(tmp_path, "sorted_index", source, {"turret.indexes": "mine = sorted_index:SORTED"})
    run = run_with(tmp_path, "import turret.tower.format.manifest")
    assert run.returncode
    assert re.search("two entries of turret.indexes are named 'flat'", run.stderr), run.stderr


@pytest.mark.parametrize("kind", sorted(kind.name for kind in OURS))
def test_every_kind_of_ours_has_its_row_in_the_documents(kind: str) -> None:
    assert f"| `{kind}` |" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
