import tomllib
from pathlib import Path

import pytest

from tests.mutations.__main__ import main
from tests.mutations.faults import ROOT, Fault, load
from tests.mutations.run import FaultRunner

LISTS = sorted((ROOT / "tests/mutations").glob("*.toml"))


def test_each_fault_is_where_the_list_says() -> None:
    for fault in load():
        fault.check()


def test_each_list_holds_the_faults_of_its_package() -> None:
    for path in LISTS:
        entries = tomllib.loads(path.read_text())["fault"]
        assert {entry["file"].partition("/")[0] for entry in entries} == {path.stem}
    assert {path.stem for path in LISTS} >= {"data", "tower", "training", "service"}
    assert len(load()) >= 220


def fault(text: str, replacement: str) -> Fault:
    return Fault(
        name="cosine",
        file="tests/mutations/faults.py",
        text=text,
        replacement=replacement,
        tests=("tests/test_mutations.py::test_each_fault_is_where_the_list_says",),
    )


@pytest.mark.nightly
def test_a_fault_that_breaks_its_test_is_caught_and_another_survives(tmp_path: Path) -> None:
    """One after the other in one copy, which is as it was after each."""
    runner = FaultRunner(tmp_path)
    assert runner.run(fault("if count != 1:", "if count != 1 or True:")).is_caught
    outcome = runner.run(fault('"""Put the fault into', '"""Bring the fault into'))
    assert not outcome.is_caught
    assert not outcome.is_error, outcome.output
    (copy,) = tmp_path.iterdir()
    assert (copy / "tests/mutations/faults.py").read_bytes() == (
        ROOT / "tests/mutations/faults.py"
    ).read_bytes()


def test_a_fault_whose_tests_can_not_run_is_an_error_and_not_caught(tmp_path: Path) -> None:
    outcome = FaultRunner(tmp_path).run(fault("import tomllib", "import no_such_module"))
    assert (outcome.is_caught, outcome.is_error) == (False, True)


@pytest.mark.parametrize(
    ("file", "text", "replacement", "test", "message"),
    [
        ("data/none.py", "a", "b", "tests", "occurs 0 times"),
        ("tests/test_mutations.py", "import", "export", "tests", "times in .*, not once"),
        ("tests/mutations/__init__.py", "Plausible", "Plausible", "tests", "its replacement is its text"),
        (
            "tests/mutations/__init__.py",
            "Plausible",
            "Other",
            "tests/none.py::test",
            "there is no tests/none",
        ),
    ],
)
def test_a_fault_that_no_longer_fits_is_an_error(
    file: str, text: str, replacement: str, test: str, message: str
) -> None:
    one = Fault(name="x", file=file, text=text, replacement=replacement, tests=(test,))
    with pytest.raises(ValueError, match=message):
        one.check(ROOT)


def test_names_are_unique(tmp_path: Path) -> None:
    entry = '[[fault]]\nname = "a"\nfile = "f"\ntext = "x"\nreplacement = "y"\ntests = ["tests"]\n'
    (tmp_path / "one.toml").write_text(entry * 2)
    with pytest.raises(ValueError, match="several faults are named a"):
        load(tmp_path)


def test_a_name_without_faults_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such fault"]) == 2
    assert "no fault has 'no such fault'" in capsys.readouterr().err
