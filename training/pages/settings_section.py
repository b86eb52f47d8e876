"""The configuration of a run, its data, its machine, and the commands that run it again."""

import shlex
from pathlib import Path
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.config.named_settings import experiment_toml
from turret.training.markup.elements import Child, Html, element, joined
from turret.training.markup.tables import facts
from turret.training.records.environment import load_environment
from turret.training.run import Run

AGAIN = Path("var/again")


def settings_section(run: Run, data: PreparedData) -> Html:
    """All settings as TOML, what identifies the data, and where the run was trained."""
    toml = experiment_toml(run.experiment, f"The experiment of {run.folder.name}, every setting in full")
    return joined(
        element("h3", "Data"),
        facts(_data(data)),
        element("h3", "Training"),
        facts([*_origin(run), *_machine(run.folder)]),
        element("h3", "Experiment"),
        element(
            "details", element("summary", "Every setting, as TOML"), element("pre", element("code", toml))
        ),
    )


def again_section(run: Run, data: PreparedData, baselines: list[str]) -> Html:
    """The commands from the prepared data to this page."""
    prepare = (
        "Save the experiment above as experiment.toml. Data with another fingerprint give another run. "
        f"The seed ({run.experiment.training.seed}) decides the "
        "initial parameters, the order of batches and the draws; another machine or other versions of the "
        "libraries may round differently."
    )
    lines = "\n".join(" ".join(map(shlex.quote, words)) for words in _commands(run, data, baselines))
    return joined(element("p", prepare), element("pre", element("code", lines)))


def _commands(run: Run, data: PreparedData, baselines: list[str]) -> list[list[str]]:
    again = str(AGAIN)
    origin = [] if run.origin is None else ["--from", str(run.origin)]
    folder = str(data.folder.resolve())
    train = ["turret", "train", "--data", folder, "--experiment", "experiment.toml", "--run", again]
    return [
        [*train, *origin],
        ["turret", "evaluate", again, "--baselines", ",".join(baselines)],
        ["turret", "report", "run", again],
        ["turret", "report", "compare", str(run.folder), again],
    ]


def _data(data: PreparedData) -> list[tuple[str, Child]]:
    manifest = data.manifest
    counts, split = manifest.counts, manifest.split
    size = f"{counts.events:,} events, {counts.users:,} users, {counts.items:,} items"
    parts = ", ".join(f"{name} {number:,} events" for name, number in split.events.items())
    sources = ", ".join(f"{Path(name).name} ({one.sha256[:12]})" for name, one in manifest.sources.items())
    return [
        ("size", size),
        ("split", f"{split.rule} ({parts})"),
        *([("newest event", manifest.time.until)] if manifest.time.until else []),
        ("fingerprint", element("code", data.fingerprint)),
        ("source files", sources),
    ]


def _origin(run: Run) -> list[tuple[str, Child]]:
    """Where the settings and the first parameters come from, unless a person gave all of them."""
    found: list[tuple[str, Child]] = []
    if run.origin is not None:
        found.append(("warm start from", str(run.origin)))
    if run.choice is not None:
        found.append(("chosen by the data", str(run.choice.get("picked", ""))))
    return found


def _machine(folder: Path) -> list[tuple[str, Child]]:
    found: dict[str, Any] | None = load_environment(folder)
    if found is None:
        return [("machine", "not recorded")]
    machine, versions = found["machine"], found["versions"]
    accelerators = ", ".join(map(str, machine.get("accelerators") or [])) or "no accelerator"
    named = [machine.get("processor"), f"{machine.get('cores')} cores", f"{machine.get('memory_gb')} GB"]
    listed = ", ".join(
        f"{name} {version}" for name, version in {"Python": found.get("python"), **versions}.items()
    )
    git = found.get("git")
    state = (
        None
        if not isinstance(git, dict)
        else f"{git.get('commit')}{' with changes' if git.get('dirty') else ''}"
    )
    return [
        ("machine", ", ".join([*(str(one) for one in named if one), accelerators])),
        ("versions", listed),
        *([("git commit", element("code", state))] if state else []),
    ]
