"""The command `turret outcomes`; it imports its dependencies when it runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def outcomes(
    answers: Annotated[
        Path, typer.Option("--answers", metavar="DIR", help="The answer log (TURRET_ANSWER_LOG).")
    ],
    key: Annotated[
        str,
        typer.Option(
            "--key", metavar="FILE|VARIABLE", help="The key of visitors: a file, or an environment variable."
        ),
    ],
    store: Annotated[
        str | None, typer.Option(help="The store of the service: sqlite:///PATH or redis://HOST.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Events that count (all); repeatable.")
    ] = None,
    within: Annotated[
        str,
        typer.Option(metavar="PAUSE", help="For events without an answer id: the longest time after it."),
    ] = "24h",
    value: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field of items with their value, such as price.")
    ] = None,
    items: Annotated[
        list[Path] | None,
        typer.Option("--items", metavar="BUNDLE", help="With --value: a bundle with the items; repeatable."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="The earliest time of an answer (all).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only answers before this time (now).")
    ] = None,
    of: Annotated[
        Path | None,
        typer.Option("--of", metavar="BUNDLE", help="The value that this version would have had (explored)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count the outcomes of each version and route, and compare a canary with the live version.

    The interval of the difference holds however often it is looked at: it is by user, and anytime-valid.

    With `--of` the log has to have exploration: each explored place is weighted by its propensities, and a
    version that was never live is ranked with the histories before each answer. It is refused below an
    effective size of 1,000 answers.

    Example: `turret outcomes --answers var/answers --key VISITOR_KEY --kind purchase`
    """
    from turret.outcomes.sources import Sources

    sources = Sources.of(answers, store, key, kind or (), within, since, until)
    if of is not None:
        version, estimated = sources.value_of(of, value, items or ())
        figures, text = {"version": version, **estimated.as_json()}, estimated.text(version)
    else:
        result = sources.outcomes(value, items or ())
        figures, text = result.as_json(), result.text()
    print(json.dumps(figures, indent=2) if as_json else text)
