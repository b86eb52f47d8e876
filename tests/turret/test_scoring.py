"""`turret score`: the answers of the service for every user, in a file that a killed run completes."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import turret
from tests.support.command_line import environment
from tests.support.places import ROOT, python_blocks
from tests.support.service_app import ADMIN, post_events, serving
from tests.support.tools import require
from tests.training.conftest import trained
from turret.data.configuration import load_configuration
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import MessyConfig, synthesise
from turret.model import Model
from turret.scoring import parts
from turret.scoring.by_item import score_items
from turret.scoring.candidates import score_candidates
from turret.scoring.cli import app
from turret.scoring.run import Run, Users, score
from turret.scoring.shared_search import Answers, Encoded, SharedSearch
from turret.scoring.vectors import scoring_of, words_of, write_vectors
from turret.tower.config import ScoringConfig
from turret.training.config.experiment import load_experiment
from turret.training.export.export import export

Row = dict[str, Any]
OF: tuple[Literal["items", "users"], ...] = ("items", "users")
HELD_OUT: tuple[Literal["validation", "test"], ...] = ("validation", "test")
AT = "2026-01-05T12:00:00Z"
KINDS = ["purchase", "cart=signal", "view=signal", "return=negative:consume"]
KIND_NAMES = [kind.partition("=")[0] for kind in KINDS if "=negative" not in kind]
SETTINGS = {
    "columns.kind": "event",
    "columns.session": "session_id",
    "kinds": KINDS,
    "filters.duplicates": "strongest",
    "filters.session_gap": "30m",
    "on_bad": "drop",
}
QUICK = ["training.batch_size=256", "training.device=cpu", "tower.dimension=8", "training.epochs=1"]
# Every condition of a recommendation that changes which items are in it, or their order.
CONDITIONS: dict[str, Row] = {
    "plain": {},
    "a filter": {"filter": {"brand": {"any_of": ["Elm", "Fir"]}}},
    "a rule": {"rules": ["in_stock"]},
    "a rule for some users": {"rules": ["tried"]},
    "a boost": {"boost": [{"filter": {"brand": {"any_of": ["Elm"]}}, "by": 1.5}]},
    "a pin": {"pin": [{"item": "i0007", "position": 2}]},
    "a cap": {"cap": {"brand": 1}},
    "diversity": {"diversity": 0.4},
    "kinds left out": {"exclude_seen": ["view", "purchase"]},
    "new items": {"among": "new"},
    "used items": {"among": "again", "exclude_seen": False},
    "a least score": {"min_score": 3.0},
    "items left out": {"exclude": ["i0001", "i0002", "i0003"]},
    "features": {"features": {"country": "de"}},
}


@dataclass(frozen=True)
class Shop:
    """A messy shop of more than 1,000 users: its log as it came, prepared data, and a trained bundle."""

    folder: Path
    data: PreparedData

    @property
    def bundles(self) -> Path:
        return self.folder / "bundles"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/history.sqlite"

    @property
    def third_part(self) -> int:
        """The part of 100 users, of whom strangers come first, before which two have accounts alone."""
        users = map(str, self.data.users.ids(range(len(self.data.users))))
        strangers = sum(user.startswith("session:") for user in users)
        return -(-strangers // 100) + 2

    def events(self) -> Iterator[list[Row]]:
        """The rows of the log with a user and a time, as events of `POST /v1/events`."""
        log = pl.read_csv(self.folder / "raw" / "events.csv", infer_schema=False)
        rows = log.filter(pl.col("user_id").is_not_null() & pl.col("item_id").is_not_null()).iter_rows(
            named=True
        )
        events = [
            {
                "event_id": str(number),
                "user_id": row["user_id"],
                "item_id": row["item_id"],
                "kind": row["event"],
                "time": row["time"].replace(" ", "T"),
            }
            for number, row in enumerate(rows)
            if (row["time"] or "").startswith("202")
        ]
        for first in range(0, len(events), 1_000):
            yield events[first : first + 1_000]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("messy")
    synthesise(MessyConfig(users=1_200, items=300, events_per_user=12, robots=0), folder / "raw")
    prepare(
        load_configuration(PrepareConfig, None, {"source": folder / "raw", **SETTINGS}), folder / "prepared"
    )
    data = PreparedData.open(folder / "prepared")
    experiment = load_experiment("youtubednn", [*QUICK, "tower.user.features=all"])
    export(trained(folder / "run", data, experiment)[0], data, folder / "bundles", "v1")
    return Shop(folder, data)


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[TestClient]:
    """A service whose store has the raw events, an item that is new, one that is withdrawn, and a rule."""
    with serving(shop.bundles, store=shop.store, history_timeout=60.0) as client:  # answers are whole
        for events in shop.events():
            post_events(client, *events)
        assert client.delete("/v1/items/i0005").status_code == 200
        in_stock: Row = {"filter": {"on_sale": {"equals": False}}}
        rules = {"in_stock": {**in_stock, "cap": {"brand": 3}}, "tried": {**in_stock, "share": 0.5}}
        answer = client.put("/v1/rules", json={"rules": rules}, headers=ADMIN)
        assert answer.status_code == 200, answer.text
        yield client


def over_http(client: TestClient, requests: list[Row]) -> pl.DataFrame:
    """The answers to requests of users, in batches, as rows of the file."""
    rows: list[Row] = []
    for first in range(0, len(requests), 100):
        answer = client.post("/v1/recommend/batch", json={"requests": requests[first : first + 100]})
        assert answer.status_code == 200, answer.text
        for request, result in zip(requests[first:], answer.json()["results"], strict=False):
            assert result["degraded"] == []
            rows += [
                {"user_id": request["user_id"], "rank": rank, "item_id": item["id"]}
                | {name: item[name] for name in ("score", "source")}
                for rank, item in enumerate(result["items"], 1)
            ]
    types = {
        "user_id": pl.String,
        "rank": pl.Int32,
        "item_id": pl.String,
        "score": pl.Float32,
        "source": pl.String,
    }
    return pl.DataFrame(rows, schema=types)


def check_equal(scored: pl.DataFrame, answers: pl.DataFrame) -> None:
    """Item for item and score for score: the same engine computes both, in batches of its own."""
    assert scored.height > 0
    assert scored.columns == answers.columns
    assert scored.sort("user_id", "rank").equals(answers.sort("user_id", "rank"))


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_thousand_users_of_the_store_get_the_answers_of_the_service(
    shop: Shop, served: TestClient, tmp_path: Path, name: str
) -> None:
    """The raw events were sent as they came; the file and HTTP have the same items and scores."""
    conditions = {"k": 7, "at": AT, **CONDITIONS[name]}
    report = score(
        Run(
            turret.load(shop.bundles).bundle,
            Users(store=shop.store),
            tmp_path / "s.parquet",
            conditions,
            part=300,
        )
    )
    scored = pl.read_parquet(tmp_path / "s.parquet")
    users = sorted({row["user_id"] for events in shop.events() for row in events})
    assert report.users == len(users) >= 1_000
    check_equal(scored, over_http(served, [{"user_id": user, **conditions} for user in users]))
    assert "i0005" not in scored["item_id"]


@pytest.mark.parametrize("name", ["plain", "used items", "a rule", "a rule for some users"])
def test_the_users_of_prepared_data_get_the_answers_of_a_service_with_their_histories(
    shop: Shop, served: TestClient, tmp_path: Path, name: str
) -> None:
    """The service has the log by `turret.load_histories`; requests have the users' prepared features."""
    conditions = {"k": 5, "at": AT, **CONDITIONS[name]}
    scored = Model.score(turret.load(shop.bundles), data=shop.data.folder, **conditions)
    store = f"sqlite:///{tmp_path}/history.sqlite"
    turret.load_histories(shop.data, store)
    names = [str(user) for user in shop.data.users.ids(range(len(shop.data.users)))]
    requests = [
        {"user_id": user, "features": shop.data.user_features.raw(row), **conditions}
        for row, user in enumerate(names)
        if not user.startswith("session:")
    ]
    with serving(shop.bundles, store=store) as client:
        check_equal(scored, over_http(client, requests))


@pytest.mark.parametrize("tower", ["youtubednn", "transformer_short"])
def test_users_with_the_same_conditions_are_ranked_together_as_alone(
    shop: Shop, tmp_path: Path, tower: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a repeat term one product ranks a block of users, of prepared data and of a store."""
    experiment = load_experiment(tower, [*QUICK, "training.repeats=false"])
    export(trained(tmp_path / "run", shop.data, experiment)[0], shop.data, tmp_path / "bundles", "v1")
    model, store = turret.load(tmp_path / "bundles"), f"sqlite:///{tmp_path}/history.sqlite"
    turret.load_histories(shop.data, store)
    ids = [str(user) for user in shop.data.users.ids(range(len(shop.data.users)))]
    users = [user for user in ids if not user.startswith("session:")]
    listed, answers, blocks = tmp_path / "users.csv", SharedSearch.answers, list[int]()
    listed.write_text("\n".join(["user_id", "nobody", *reversed(users)]))

    def counted(self: SharedSearch, count: int, encoded: Encoded) -> Answers:
        blocks.append(count)
        return answers(self, count, encoded)

    monkeypatch.setattr(SharedSearch, "answers", counted)
    with serving(tmp_path / "bundles", store=store) as client:
        assert client.delete("/v1/items/i0005").status_code == 200
        for name in ("plain", "a filter", "kinds left out", "items left out"):
            conditions = {"k": 30, "at": AT, **CONDITIONS[name]}
            expected = over_http(client, [{"user_id": user, **conditions} for user in ["nobody", *users]])
            check_equal(model.score(store=store, users=listed, **conditions), expected)
            without = {**conditions, "exclude": ["i0005", *conditions.get("exclude", [])]}
            check_equal(model.score(data=shop.data.folder, users=listed, **without), expected)
    assert blocks == [len(users) + 1] * 8


def test_a_row_of_a_file_is_a_request(shop: Shop, served: TestClient, tmp_path: Path) -> None:
    """Histories with kinds and times, features, a user without a history; ids that are hostile."""
    histories: list[list[Row]] = [
        [{"item": "i0001", "kind": "view"}, {"item": "i0002", "kind": "purchase"}],
        [],
        [{"item": "no such item", "kind": None}],
    ]
    ids = ["7", "a\x00b\n../é", "x" * 512]
    times = [["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], [], ["2026-01-02T00:00:00Z"]]
    rows = [
        {"user_id": user, "history": history, "history_times": when, "at": AT, "country": "de"}
        for user, history, when in zip(ids, histories, times, strict=True)
    ]
    path = tmp_path / "users.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = turret.load(shop.bundles).score(users=path, k=3, exclude=["i0005"])
    requests = [{"k": 3, "exclude": ["i0005"], **row} for row in rows]
    for request in requests:
        request["features"] = {"country": request.pop("country")}
    check_equal(scored, over_http(served, requests))
    assert set(scored.filter(pl.col("user_id") != "7")["source"]) == {"popular"}


def test_users_are_chosen_by_a_file(shop: Shop, served: TestClient, tmp_path: Path) -> None:
    """An unknown user is answered as the service answers; the others as without the file, in its order."""
    model, path = turret.load(shop.bundles), tmp_path / "users.csv"
    path.write_text("user_id\nnobody\nu00003\nu00001\n")
    for source in ({"data": shop.data.folder}, {"store": shop.store}):
        chosen = model.score(**source, users=path, k=4, at=AT)
        assert list(dict.fromkeys(chosen["user_id"])) == ["nobody", "u00003", "u00001"]
        known = model.score(**source, k=4, at=AT).filter(pl.col("user_id").is_in(["u00001", "u00003"]))
        assert (
            chosen.filter(pl.col("user_id") != "nobody")
            .sort("user_id", "rank")
            .equals(known.sort("user_id", "rank"))
        )


def test_a_killed_run_goes_on_after_its_complete_parts(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts that are complete aren't made again, and the file is that of a run without a break."""
    bundle, users, conditions = (
        turret.load(shop.bundles).bundle,
        Users(data=shop.data.folder),
        {"k": 3, "at": AT},
    )
    whole = score(Run(bundle, users, tmp_path / "whole.parquet", conditions, part=100))
    write, target = parts.Parts.write, tmp_path / "s.parquet"

    def dying(self: parts.Parts, number: int, table: pl.DataFrame) -> None:
        if number == shop.third_part:
            raise KeyboardInterrupt
        write(self, number, table)

    monkeypatch.setattr(parts.Parts, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        score(Run(bundle, users, target, conditions, part=100))
    assert not target.exists()
    monkeypatch.setattr(parts.Parts, "write", write)
    with pytest.raises(
        TurretError, match=r"parts of a run with k = 3, and this one has 4; repeat the settings"
    ):
        score(Run(bundle, users, target, {**conditions, "k": 4}, part=100))
    report = score(Run(bundle, users, target, conditions, part=100))
    assert 0 < report.users <= whole.users - 200
    assert pl.read_parquet(target).equals(pl.read_parquet(tmp_path / "whole.parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.parquet", "whole.parquet"]
    assert target.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"k": 0}, "k = 0: send a number from 1"),
        ({"k": 10**9}, "k = 1000000000: send a number up to 1000"),
        ({"filter": {"colour": {"any_of": ["red"]}}}, "colour"),
        ({"rules": ["no such rule"]}, "rules = 'no such rule': there is no such rule"),
        ({"cap": {"colour": 1}}, "cap.colour = 'colour': items have no such field; they have title, brand"),
        ({"exclude_seen": ["eaten"]}, "exclude_seen.0 = 'eaten': version v1 has no such kind"),
        ({"among": "again", "exclude_seen": True}, "among = 'again': version v1 leaves out all used items"),
        ({"features": {"shoe": 43}}, "shoe"),
        ({"at": "soon"}, "at = 'soon': send seconds"),
        ({"cursor": "x"}, "cursor"),
        ({"colour": 1}, "colour"),
    ],
)
def test_conditions_that_no_request_can_have_are_refused_before_any_user(
    shop: Shop, tmp_path: Path, conditions: Row, words: str
) -> None:
    """In the words of the service, and nothing is left beside the file."""
    bundle = turret.load(shop.bundles).bundle
    with pytest.raises(TurretError, match=words.replace("(", r"\(")):
        score(Run(bundle, Users(data=shop.data.folder), tmp_path / "s.parquet", conditions))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("u.parquet", "no table", "can't be read|not a|[Pp]arquet"),
        ("u.csv", "user\nu1\n", "has no column user_id, but user; rename one"),
        ("u.csv", "", "can't be read|no column"),
        (
            "u.jsonl",
            '{"user_id": "u1"}\n',
            "has no column history, but user_id; name the users' histories with --data",
        ),
        ("u.jsonl", '{"user_id": "u1", "history": [], "age": 3}\n', "has a column 'age' that no request has"),
        (
            "u.jsonl",
            '{"user_id": "u1", "history": [""]}\n',
            "row 1 of .*: history.0 = '': send a 64-bit integer",
        ),
        ("u.jsonl", '{"user_id": null, "history": []}\n', "row 1 of .* has no user_id"),
        ("u.xlsx", "", "its name should end in one of .parquet, .csv"),
        ("u.csv", "user_id,history\nJos\xe9,i0001\n", "u.csv can't be read .*utf-8"),
        ("u.jsonl", '{"user_id": ["u1"], "history": []}\n', "row 1 of .*: user_id"),
    ],
)
def test_a_file_of_users_that_can_not_be_read_is_refused(
    shop: Shop, tmp_path: Path, name: str, text: str, words: str
) -> None:
    """The sentence names the file, and the row or the column; nothing keeps the mended file from a run."""
    path, target = tmp_path / name, tmp_path / "s.parquet"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TurretError, match=words):
        score(Run(turret.load(shop.bundles).bundle, Users(users=path), target))
    assert [*tmp_path.iterdir()] == [path]


def test_a_run_without_a_complete_part_binds_no_later_one(shop: Shop, tmp_path: Path) -> None:
    """A file that was refused, and one killed before its first part, are followed by other settings."""
    path, target = tmp_path / "u.csv", tmp_path / "s.parquet"
    bundle, users = turret.load(shop.bundles).bundle, Users(shop.data.folder, users=path)
    path.write_text("user_id\nu00001\n\n")
    with pytest.raises(TurretError, match=r"row 2 of .* has no user_id"):
        score(Run(bundle, users, target, {"k": 3}))
    path.write_text("user_id\nu00001\n")
    assert score(Run(bundle, users, target, {"k": 3})).rows == 3
    killed = target.with_name(f".{target.name}.parts")
    killed.mkdir()
    (killed / "run.json").write_text('{"settings": {"k": 9}, "begun": 0}')
    (killed / "users.jsonl").write_text('"somebody"\n')
    assert score(Run(bundle, users, target, {"k": 4})).rows == 4


def test_each_line_of_json_is_read_as_it_is(shop: Shop, served: TestClient, tmp_path: Path) -> None:
    """Also the first one with kinds, with a time or with another column, behind many without."""
    path = tmp_path / "u.jsonl"
    plain: list[Row] = [{"user_id": number, "history": ["i0001"], "at": AT} for number in range(150)]
    others: list[Row] = [
        {"user_id": "a", "history": [{"item": "i0001", "kind": "purchase"}, "i0002"], "at": AT},
        {"user_id": "b", "history": ["i0002"], "history_times": ["2026-01-01"], "at": AT},
    ]
    rows = [*({**row, "history": []} for row in plain), *others]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = turret.load(shop.bundles).score(users=path, k=4)
    answers = over_http(
        served, [{"k": 4, "exclude": ["i0005"], **row, "user_id": str(row["user_id"])} for row in others]
    )
    of_others = turret.load(shop.bundles).score(users=path, k=4, exclude=["i0005"])
    check_equal(of_others.filter(pl.col("user_id").is_in(["a", "b"])), answers)
    assert scored["user_id"].n_unique() == 152
    for line, words in (
        ('{"user_id": "c", "history": [], "age": 3}', "has a column 'age' that no request has"),
        ("[1]", "can't be read|no JSON object"),
    ):
        path.write_text("".join(json.dumps(row) + "\n" for row in plain) + line + "\n")
        with pytest.raises(TurretError, match=words):
            turret.load(shop.bundles).score(users=path)


def test_times_of_a_parquet_file_are_those_of_its_column(shop: Shop, tmp_path: Path) -> None:
    """Times and dates count as their texts in ISO 8601."""
    row = {"user_id": "u1", "history": ["i0001", "i0002"], "at": datetime(2026, 1, 5, 12)}
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    pl.DataFrame([{**row, "history_times": days}]).write_parquet(tmp_path / "u.parquet")
    texts = {**row, "at": "2026-01-05T12:00:00Z", "history_times": [str(day) for day in days]}
    (tmp_path / "u.jsonl").write_text(json.dumps(texts))
    by_time, by_text = (
        turret.load(shop.bundles).score(users=tmp_path / name, k=5) for name in ("u.parquet", "u.jsonl")
    )
    assert by_time.equals(by_text)


def test_a_target_that_can_not_be_written_is_refused(shop: Shop, tmp_path: Path) -> None:
    """A missing folder, a folder, another form, a full disk; the complete parts stay for the next run."""
    bundle, users = turret.load(shop.bundles).bundle, Users(data=shop.data.folder)
    (tmp_path / "folder.parquet").mkdir()
    for name, words in {
        "missing/s.parquet": "missing is no folder; make it",
        "folder.parquet": "is a folder; name a file in it",
        "s.csv": "give it a name like scores.parquet",
    }.items():
        with pytest.raises(TurretError, match=words):
            score(Run(bundle, users, tmp_path / name, {}))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(
            TurretError, match=r"can't be written \(.*make room, and the same command goes on"
        ):
            score(Run(bundle, users, tmp_path / "s.parquet", {"k": 20}, part=500))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert score(Run(bundle, users, tmp_path / "s.parquet", {"k": 20}, part=500)).rows > 0


def test_the_inner_product_of_the_vectors_over_the_temperature_is_the_score(
    shop: Shop, tmp_path: Path
) -> None:
    """In a Parquet file, which names both, and in `.npy` with the ids beside."""
    bundle, users = turret.load(shop.bundles).bundle, Users(data=shop.data.folder)
    said = [
        write_vectors(bundle, of, tmp_path / f"{of}{end}", users) for of in OF for end in (".parquet", ".npy")
    ]
    assert "score = user . item / 0.07; vectors have length 1" in said[0]
    tables = {of: pl.read_parquet(tmp_path / f"{of}.parquet") for of in OF}
    for of, table in tables.items():
        lines = (tmp_path / f"{of}.ids.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == table.to_series(0).to_list()
        assert np.array_equal(np.load(tmp_path / f"{of}.npy"), table["vector"].to_numpy())
        told = pl.read_parquet_metadata(tmp_path / f"{of}.parquet")
        assert (told["version"], told["normalisation"]) == ("v1", "length 1")
        assert float(told["temperature"]) == pytest.approx(0.07)
    scored = Model.score(turret.load(shop.bundles), data=shop.data.folder, k=300, exclude_seen=False)
    assert tables["items"].height == bundle.manifest.item_count
    product = (pl.col("vector") * pl.col("vector_item")).arr.sum() / 0.07
    both = scored.join(tables["users"], on="user_id").join(tables["items"], on="item_id", suffix="_item")
    first = (
        both.group_by("user_id").agg(pl.all().sort_by("rank").last()).with_columns(product.alias("product"))
    )
    # The last item of a user is none of the history, whose items gain by the repeat term; the sums round.
    assert first.height == tables["users"].height > 900
    assert float((first["product"] - first["score"]).abs().median()) < 1e-4
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    with pytest.raises(TurretError, match=r"name a \.parquet file, or a \.npy file"):
        write_vectors(bundle, "items", tmp_path / "items.csv")
    with pytest.raises(TurretError, match="no users are named"):
        write_vectors(bundle, "users", tmp_path / "users.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(TurretError, match=r"folder\.npy is a folder; name a file in it"):
        write_vectors(bundle, "items", tmp_path / "folder.npy")


@pytest.mark.parametrize(
    ("option", "value"),
    [("min-score", "0"), ("filter", "{}"), ("exclude-seen", "false"), ("diversity", "0.1"), ("rule", "a")],
)
def test_users_of_an_item_have_no_conditions(shop: Shop, tmp_path: Path, option: str, value: str) -> None:
    """Also a condition of zero or false is refused, as it would count for nothing."""
    arguments = [str(shop.bundles), "--data", str(shop.data.folder), "--to", str(tmp_path / "s.parquet")]
    result = CliRunner().invoke(app, ["score", *arguments, "--by", "item", f"--{option}", value])
    assert str(result.exception) == f"--{option} doesn't go with --by item; leave it out"


def test_for_each_item_the_best_users_are_those_who_have_not_had_it(shop: Shop, tmp_path: Path) -> None:
    """As the lists of all users say, turned round: scores to the last bit, also where items are chosen."""
    model, users = turret.load(shop.bundles), Users(data=shop.data.folder)
    lists = model.score(data=shop.data.folder, k=300, at=AT, exclude_seen=KIND_NAMES)
    lists = lists.filter(pl.col("source") == "towers")
    said = score_items(Run(model.bundle, users, tmp_path / "s.parquet", part=150), 7)
    found = pl.read_parquet(tmp_path / "s.parquet")
    assert f"{len(model.bundle.vocabulary)} items" in said
    assert found.columns == ["item_id", "rank", "user_id", "score"]
    best = pl.struct("score", "user_id").sort_by([-pl.col("score"), pl.col("user_id")]).head(7)
    expected = lists.group_by("item_id").agg(best.alias("best")).explode("best").unnest("best")
    key = ["item_id", "score", "user_id"]
    assert found.select(key).sort(key).equals(expected.select(key).sort(key))
    assert (
        found.sort("item_id", "rank")["score"].to_list()
        == found.sort(["item_id", "score"], descending=[False, True])["score"].to_list()
    )
    (tmp_path / "items.csv").write_text("item_id\ni0003\ni0001\n")
    score_items(Run(model.bundle, users, tmp_path / "two.parquet"), 7, tmp_path / "items.csv")
    assert pl.read_parquet(tmp_path / "two.parquet").equals(
        found.filter(pl.col("item_id").is_in(["i0001", "i0003"]))
    )
    (tmp_path / "items.csv").write_text("item_id\nno such item\n")
    (tmp_path / "none.csv").write_text("item_id\n")
    (tmp_path / "twice.csv").write_text("user_id\nu00003\nu00001\nu00003\n")
    twice = Users(shop.data.folder, users=tmp_path / "twice.csv")
    with pytest.raises(TurretError, match=r"twice\.csv has 2 rows of user 'u00003'; keep one"):
        score_items(Run(model.bundle, twice, tmp_path / "s.parquet"), 7)
    for k, items, words in (
        (7, tmp_path / "none.csv", "none.csv names no items"),
        (0, None, "k = 0 users of 300 items; give 1 to"),
        (10**9, None, "k = 1000000000 users of"),
        (7, tmp_path / "items.csv", "version v1 has no item 'no such item'; leave it out"),
    ):
        with pytest.raises(TurretError, match=words):
            score_items(Run(model.bundle, users, tmp_path / "s.parquet"), k, items)


@pytest.mark.process
def test_a_run_goes_on_after_sigkill(shop: Shop, tmp_path: Path) -> None:
    """The process dies with a part half written; the parts before it stay, and the file becomes whole."""
    target, users = tmp_path / "s.parquet", Users(data=shop.data.folder)
    code = f"""
import os, signal, threading, turret
from pathlib import Path
from turret.scoring import parts, run
write, written = parts.Parts.write, threading.Condition()
def dying(self, number, table):
    if number == {shop.third_part}:
        with written:  # another thread may still write a part before
            written.wait_for(lambda: all(map(self.is_complete, range(number))))
        (self.folder / f"{{number:08}}.new").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, number, table)
    with written:
        written.notify_all()
parts.Parts.write = dying
bundle = turret.load({str(shop.bundles)!r}).bundle
users = run.Users(data=Path({str(shop.data.folder)!r}))
run.score(run.Run(bundle, users, Path({str(target)!r}), {{"k": 3, "at": {AT!r}}}, part=100))
"""
    died = subprocess.run([sys.executable, "-c", code], env=environment(), check=False)
    assert died.returncode == -signal.SIGKILL
    assert not target.exists()
    bundle = turret.load(shop.bundles).bundle
    report = score(Run(bundle, users, target, {"k": 3, "at": AT}, part=100))
    whole = score(Run(bundle, users, tmp_path / "whole.parquet", {"k": 3, "at": AT}, part=100))
    assert 0 < report.users <= whole.users - 200
    assert pl.read_parquet(target).equals(pl.read_parquet(tmp_path / "whole.parquet"))


@pytest.mark.parametrize("part", ["validation", "test"])
def test_candidates_tell_whether_the_user_then_took_the_item(
    shop: Shop, tmp_path: Path, part: Literal["validation", "test"]
) -> None:
    """Beside the fields and the features; the history ends before the part, as a figure of it shows."""
    bundle, data, target = turret.load(shop.bundles).bundle, shop.data, tmp_path / "c.parquet"
    conditions = {"k": 20, "exclude_seen": False}
    score_candidates(Run(bundle, Users(data=data.folder), target, conditions, part=200), part)
    table = pl.read_parquet(target)
    took = {
        (str(data.users.id(user)), str(item))
        for user in range(len(data.users))
        for item in data.item_ids.ids(data.targets(user, part))
    }
    pairs = list(zip(table["user_id"], table["item_id"], strict=True))
    assert [pair in took for pair in pairs] == table["taken"].to_list()
    assert 0 < table["taken"].sum() < table.height
    assert set(table["user_id"]) == {user for user, _ in took if not user.startswith("session:")}
    items = pl.read_csv(shop.folder / "raw" / "items.csv").select("item_id", "brand")
    assert table.join(items, on="item_id", how="left", maintain_order="left")["brand"].equals(
        table["item.brand"]
    )
    users = pl.read_csv(shop.folder / "raw" / "users.csv").select("user_id", "country")
    joined = table.join(users, on="user_id", how="left", maintain_order="left")
    known = joined.filter(pl.col("user.country").is_not_null())
    assert known.height > 0.9 * table.height
    assert known["user.country"].equals(known["country"].alias("user.country"))
    with pytest.raises(TurretError, match="are in prepared data; add --data DIR"):
        score_candidates(Run(bundle, Users(store=shop.store), target, {}), part)


def test_the_ranker_of_the_page_is_trained_on_the_candidates(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has 20 of the 40 candidates, in another order than that of the towers."""
    require("lightgbm")
    monkeypatch.chdir(tmp_path)
    bundle, target = turret.load(shop.bundles).bundle, Path("var")
    target.mkdir()
    for part in HELD_OUT:
        run = Run(bundle, Users(data=shop.data.folder), target / f"{part}.parquet", {"k": 40})
        score_candidates(run, part)
    (block,) = python_blocks(ROOT / "docs" / "ranking.md")
    names: dict[str, Any] = {}
    exec(block, names)
    best = names["best"]
    assert set(best.group_by("user_id").len()["len"]) == {20}
    assert best["user_id"].n_unique() == pl.read_parquet("var/test.parquet")["user_id"].n_unique()
    assert best["rank"].to_list() != [*range(1, 21)] * best["user_id"].n_unique()


def test_vectors_with_factors_of_pairs_are_not_said_to_have_length_1() -> None:
    scoring = ScoringConfig(pairs=8)
    assert scoring_of(scoring)["normalisation"] == "none"
    assert "vectors are not normalised" in words_of(scoring)
