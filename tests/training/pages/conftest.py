from dataclasses import replace
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.run import Run
from turret.training.trainer import train

TINY = ["training.epochs=1", "training.device=cpu", "tower.dimension=4", "evaluation.bootstrap=100"]
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'></style>&amp;"


@pytest.fixture(scope="session")
def other(evaluated: Run, shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one epoch on the shop, not evaluated yet. Only `turret report compare` may write to it."""
    folder = tmp_path_factory.mktemp("other") / "other"
    training = evaluated.experiment.training.model_copy(update={"epochs": 1, "seed": 3})
    run = replace(
        evaluated, folder=folder, experiment=evaluated.experiment.model_copy(update={"training": training})
    )
    train(run, shop, report=lambda line: None)
    return run


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a log whose ids, titles, fields and folders are markup."""
    folder = tmp_path_factory.mktemp("hostile") / "<b>raw&"
    (folder / "raw").mkdir(parents=True)
    quoted = MARKUP.replace('"', '""')
    items = [f'"{quoted} {number}"' for number in range(12)]
    rows = [
        f'"<i>u{user}{quoted}",{items[(user + step * (1 + user % 3)) % 12]},{step}'
        for user in range(30)
        for step in range(8)
    ]
    (folder / "raw" / "events.csv").write_text("\n".join(["user_id,item_id,order", *rows]) + "\n")
    described = [f"{item},{item},{item}" for item in items]
    (folder / "raw" / "items.csv").write_text("\n".join(["item_id,title,genre", *described]) + "\n")
    settings = {"source": folder / "raw", "columns": {"time": "order"}, "fields": ["title", "genre"]}
    prepare(PrepareConfig.model_validate(settings), folder / "prepared")
    data = PreparedData.open(folder / "prepared")
    run = Run(folder / "<u>run", load_experiment("ids", TINY), Path(data.folder), data.fingerprint)
    train(run, data, report=lambda line: None)
    return run
