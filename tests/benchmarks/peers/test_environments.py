import ast
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.peers import environments
from benchmarks.peers.contestants import POOLED, SCRIPTS, TRANSFORMER_FULL, TRANSFORMER_SAMPLED
from benchmarks.peers.environments import REQUIREMENTS, environment
from benchmarks.peers.errors import PeerMissingError
from benchmarks.time_to_quality import RECTOOLS

FILES = sorted(REQUIREMENTS.glob("*.txt"))


def requirements(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    parsed = [Requirement(line) for line in lines]
    return {one.name.lower().replace("_", "-"): str(one.specifier) for one in parsed}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_requirement_of_a_peer_is_pinned(file: Path) -> None:
    for name, version in requirements(file).items():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", version), name


@pytest.mark.parametrize(
    ("file", "library", "version"),
    [
        ("torch_rechub", "torch-rechub", "==0.9.0"),
        ("torch_rechub", "torch", "==2.13.0"),
        ("rectools", "rectools", "==0.19.0"),
        ("rectools", "torch", "==2.13.0"),
        ("tensorflow_recommenders", "tensorflow-recommenders", "==0.7.7"),
        ("graph_search", "hnswlib", "==0.8.0"),
        ("graph_search", "usearch", "==2.26.6"),
    ],
)
def test_a_peer_is_compared_at_the_version_that_the_pages_name(file: str, library: str, version: str) -> None:
    """And with the torch that Turret itself is measured with."""
    assert requirements(REQUIREMENTS / f"{file}.txt")[library] == version


def test_every_contestant_has_a_script_and_requirements() -> None:
    for one in (*POOLED, TRANSFORMER_SAMPLED, TRANSFORMER_FULL, RECTOOLS):
        module = ast.parse((SCRIPTS / f"{one.script}.py").read_text("utf-8"))
        functions = {node.name: node.args.args for node in module.body if isinstance(node, ast.FunctionDef)}
        assert [argument.arg for argument in functions["prepare"]] == ["data", "settings"]
        assert (REQUIREMENTS / f"{one.requirements}.txt").is_file()


def test_an_unknown_peer_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(
        PeerMissingError,
        match="there are graph_search, http_servers, rectools, tensorflow_recommenders, torch_rechub",
    ):
        environment("lightfm", tmp_path)


@pytest.mark.nightly
def test_an_environment_is_made_once_for_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter of its own; after a change of the requirements, another one."""
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    (tmp_path / "nothing.txt").write_text("# No requirement at all.\n")
    said: list[str] = []
    python = environment("nothing", tmp_path / "made", said.append)
    assert environment("nothing", tmp_path / "made", said.append) == python
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    ).stdout
    assert Path(prefix.strip()) == python.parent.parent
    assert len(said) == 1
    (tmp_path / "nothing.txt").write_text("# Still none.\n")
    monkeypatch.setattr(
        environments, "_pip", lambda requirements, place, command: place.mkdir(exist_ok=True, parents=True)
    )
    assert environment("nothing", tmp_path / "made", said.append) != python


@pytest.mark.nightly
def test_without_a_network_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the port of the index. The half-made environment is removed."""
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    (tmp_path / "turret_peer.txt").write_text("no-such-library-of-turret==1\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(PeerMissingError) as caught:
        environment("turret_peer", tmp_path / "made", lambda line: None)
    assert "There seems to be no network." in str(caught.value)
    assert "no-such-library-of-turret==1" in str(caught.value)
    assert "--peers" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "made").iterdir())
