"""The answer log: ids, visitors, the files of minutes, and reading them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from turret.data.answers import files
from turret.data.answers.form import answer_id_of, minute_file, minute_of, read_key, time_of, visitor_of
from turret.data.answers.log import SCHEMA, read_answers
from turret.data.errors import ConfigurationError, DataError, EmptyDataError, SourceError
from turret.data.synthetic.answers import AnswersConfig, World, answer_tables, show
from turret.data.synthetic.synthesis import synthesise_answers

NOON = 1_777_636_800_000  # 2026-05-01T12:00:00Z


def write(folder: Path, times: Sequence[int], worker: str = "0") -> Path:
    """A file of the log with an answer at each time."""
    path = minute_file(folder, times[0], worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "answer_id": answer_id_of(time, bytes([number])),
            "time": time,
            "call": "recommend",
            "version": "spring",
            "route": "live",
            "visitor": visitor_of("7", b"key"),
            "items": ["a", "b"],
            "places": [1, 2],
            "scores": [1.0, 0.5],
            "sources": ["towers", "towers"],
            "propensities": [1.0, 0.25],
            "context": "{}",
            "rules": [],
        }
        for number, time in enumerate(times)
    ]
    pl.DataFrame(rows, schema_overrides=SCHEMA).select(SCHEMA.names()).write_parquet(path)
    return path


def test_an_answers_id_has_its_time_and_sorts_by_it() -> None:
    early, late = answer_id_of(NOON, b"\xff" * 10), answer_id_of(NOON + 1, b"\0" * 10)
    assert len(early) == len(late) == 32
    assert early < late
    assert (time_of(early), time_of(late)) == (NOON, NOON + 1)


def test_a_visitor_is_a_hash_under_the_key() -> None:
    """As RFC 7693 defines keyed BLAKE2b; 7 and "7" are one user."""
    assert visitor_of("7", b"key") == hashlib.blake2b(b"7", digest_size=16, key=b"key").hexdigest()
    assert visitor_of("7", b"key") != visitor_of("7", b"other")
    assert len(visitor_of("é\ud800", b"key")) == 32


def test_the_key_is_in_a_file_or_in_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_bytes(b"secret\n")
    monkeypatch.setenv("VISITOR_KEY", "other")
    assert read_key(str(tmp_path / "key")) == b"secret"
    assert read_key("VISITOR_KEY") == b"other"
    (tmp_path / "key").write_bytes(b"\n")
    with pytest.raises(ConfigurationError, match="1 to 64 bytes, and this one has 0"):
        read_key(str(tmp_path / "key"))
    with pytest.raises(ConfigurationError, match="no such file and no such environment variable"):
        read_key("NO_SUCH_KEY")


def test_a_file_has_the_minute_in_its_name(tmp_path: Path) -> None:
    path = minute_file(tmp_path, NOON + 59_999, "3")
    assert path == tmp_path / "2026-05-01" / "1200_3.parquet"
    assert minute_of(path) == NOON
    assert minute_of(tmp_path / "2026-05-01" / "notes.parquet") is None


def test_the_answers_of_a_range_of_times_are_read(tmp_path: Path) -> None:
    write(tmp_path, [NOON, NOON + 30_000])
    write(tmp_path, [NOON + 60_000], "1")
    (tmp_path / "2026-05-01" / ".1201_0.parquet.new").write_bytes(b"half of a fi")
    assert read_answers(tmp_path).collect().schema == SCHEMA
    assert pl.DataFrame(files.SCHEMA.empty_table()).schema == SCHEMA, "the service writes other columns"
    times = read_answers(tmp_path, NOON + 1, NOON + 60_000).collect()["time"].dt.epoch("ms")
    assert times.to_list() == [NOON + 30_000]


def test_files_of_other_minutes_are_not_opened(tmp_path: Path) -> None:
    write(tmp_path, [NOON])
    write(tmp_path, [NOON + 600_000]).write_bytes(b"PAR1")
    assert read_answers(tmp_path, last=NOON + 60_000).collect().height == 1


def test_a_folder_without_answers_and_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is no folder"):
        read_answers(tmp_path / "nothing")
    with pytest.raises(EmptyDataError, match=r"has no answers \(no file of the log\)"):
        read_answers(tmp_path)
    broken = write(tmp_path, [NOON])
    with pytest.raises(EmptyDataError, match="none of this time"):
        read_answers(tmp_path, first=NOON + 600_000)
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"1200_0.parquet can't be read .*its answers are lost"):
        read_answers(tmp_path)
    pl.DataFrame({"answer_id": [1]}).write_parquet(broken)
    with pytest.raises(SourceError, match="has answer_id of Int64"):
        read_answers(tmp_path)
    pl.DataFrame({"user": [1]}).write_parquet(broken)
    with pytest.raises(SourceError, match="has no column answer_id"):
        read_answers(tmp_path)


SMALL = AnswersConfig(users=60, items=60, pool=20, places=5, days=2)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_seed_makes_the_same_shop_with_answers(tmp_path: Path) -> None:
    synthesise_answers(SMALL, tmp_path / "first")
    synthesise_answers(SMALL, tmp_path / "again")
    synthesise_answers(SMALL.model_copy(update={"seed": 1}), tmp_path / "other")
    first = _files(tmp_path / "first")
    assert _files(tmp_path / "again") == first
    assert _files(tmp_path / "other")["outcomes.csv"] != first["outcomes.csv"]
    assert json.loads(first["truth.json"])["lift"].keys() == {"purchases", "revenue"}
    (tmp_path / "first" / "mine").touch()
    with pytest.raises(DataError, match="also holds 'mine'"):
        synthesise_answers(SMALL, tmp_path / "first", overwrite=True)


def test_the_log_of_the_shop_is_read_by_its_own_reader(tmp_path: Path) -> None:
    synthesise_answers(SMALL, tmp_path / "shop")
    log = read_answers(tmp_path / "shop" / "answers").collect().sort("answer_id")
    assert log.equals(answer_tables(SMALL).answers.sort("answer_id"))
    outcomes = pl.read_csv(tmp_path / "shop" / "outcomes.csv")
    named = outcomes.join(log, on="answer_id", how="left")
    assert named.select(pl.col("items").list.contains(pl.col("item_id")).all()).item()
    key = read_key(str(tmp_path / "shop" / "visitors.key"))
    assert named["visitor"].to_list() == [visitor_of(user, key) for user in named["user_id"]]


def test_shared_noise_ranks_the_same_items_wrongly_for_all_users() -> None:
    world = World.of(SMALL, np.random.default_rng(0))
    shared = world.ranking(0.0, 20, np.random.default_rng(1), shared_noise=1e3)
    assert (shared == shared[0]).all()
    assert not (world.ranking(0.0, 20, np.random.default_rng(1)) == shared[0]).all(axis=1).any()


def test_the_propensities_are_the_shares_of_the_draws() -> None:
    """Chi-square over the 20 items of a pool at each place: 19 degrees of freedom."""
    rankings = np.tile(np.arange(20), (200_000, 1))
    items, propensities = show(rankings, 3, 0.3, np.random.default_rng(0))
    for place in range(3):
        expected = np.zeros(20)
        expected[items[:, place]] = propensities[:, place]
        assert expected.sum() == pytest.approx(1)
        counts, expected = np.bincount(items[:, place], minlength=20), expected * len(items)
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert statistic < 50.8  # exceeded with probability 0.0001
    assert all(len(set(row)) == 3 for row in items[:1_000].tolist())


def test_the_true_values_are_those_of_many_answers() -> None:
    """The purchases of the routes are close to their expectation."""
    tables = answer_tables(AnswersConfig(users=1_000, items=60, pool=20, answers_per_user=10))
    by_route = tables.outcomes.join(tables.answers, on="answer_id").group_by("route").len()
    answers = dict(tables.answers.group_by("route").len().iter_rows())
    for route, count in by_route.iter_rows():
        expected = tables.truth["versions"][route]["purchases"]
        # Users differ: a route has other users than the other.
        assert count / answers[route] == pytest.approx(expected, rel=0.15)
