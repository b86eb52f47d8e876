"""The seeds of `--seeds`, and the folder of their runs."""

from pathlib import Path

import pytest

from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.run import SEEDS, Run
from turret.training.seeds.runs import SeedRuns, parse_seeds, with_seed


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0-4", (0, 1, 2, 3, 4)),
        ("0,1,5", (0, 1, 5)),
        (" 7 ", (7,)),
        ("3 - 5,1, 4", (3, 4, 5, 1)),
        ("4294967295", (2**32 - 1,)),
    ],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    """Each counts once."""
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,,2", "4-0", "-1", "0-", "1.5", "4294967296", "0-4;7"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(TrainingError, match=r"--seeds .* is no seed and no range; .* such as 0-4 or 0,1,5\."):
        parse_seeds(text)


def test_too_many_seeds_are_refused() -> None:
    with pytest.raises(TrainingError, match="more than 1,000 seeds"):
        parse_seeds("0-1000000")


def test_only_the_seed_of_an_experiment_is_replaced() -> None:
    assert with_seed(load_experiment("demo"), 5) == load_experiment("demo", ["training.seed=5"])


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With more seeds they are in rising order; a folder without the file is None."""
    assert SeedRuns.read(tmp_path) is None
    runs = SeedRuns(tmp_path / "a", (4,)).with_seeds([1, 4, 2])
    runs.write({"finished": []})
    assert SeedRuns.read(tmp_path / "a") == runs == SeedRuns(tmp_path / "a", (1, 2, 4))
    assert (runs.begun(), runs.finished()) == ([], {})
    with pytest.raises(TrainingError, match="no seed is trained to its end yet"):
        runs.finished_runs()


def test_commands_for_one_run_name_a_run_of_the_folder(tmp_path: Path) -> None:
    SeedRuns(tmp_path, (2, 3)).write({})
    (tmp_path / "seed-2").mkdir()
    with pytest.raises(TrainingError, match=r"holds the runs of several seeds; name one .*seed-2\."):
        Run.read(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"seeds": ["x"]}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / SEEDS).write_text(content)
    with pytest.raises(TrainingError, match=r"seeds\.json: it can't be read"):
        SeedRuns.read(tmp_path)
