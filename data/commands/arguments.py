"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

PREPARED = Path("var/prepared")

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting by its name in the file; repeatable."),
]
