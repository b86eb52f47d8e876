"""`turret keys`: make, list and revoke API keys. A running service reloads them within a second."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="keys",
    help="Make, list and revoke the API keys of a service.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The key file (TURRET_KEYS, or var/keys.json)."),
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the key: letters a-z, digits, hyphens.")
]


@app.command()
def new(
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="A scope of the key: read, write, rules or admin; repeatable."),
    ],
    rate: Annotated[float | None, typer.Option(help="Most requests a second, or at once (no limit).")] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Days until it expires (never).")
    ] = None,
    file: File = None,
) -> None:
    """Make a key and print it once; the file has only its hash.

    From the first key on, reading and writing require a key.

    Example: `turret keys new shop --scope read --scope write --rate 100`
    """
    from pydantic import ValidationError

    from turret.service.errors import ServiceError
    from turret.service.keys.keys import add_key, new_key, record

    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    key = new_key(name)
    try:
        stored = record(name, key, scope, rate=rate, expires=expires)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ServiceError(f"{first['loc'][0]} {first['input']!r} is invalid: {first['msg']}") from None
    path = _path(file)
    add_key(path, stored)
    typer.echo(f"stored in {path}; the key is not shown again:", err=True)
    print(key)


@app.command("list")
def show(file: File = None) -> None:
    """List the keys: names, scopes, rates and expiry.

    Example: `turret keys list`
    """
    from turret.service.keys.keys import read_keys

    path = _path(file)
    try:
        keys = read_keys(path)
    except FileNotFoundError:
        print(f"there is no file {path}: reading and writing are open to all")
        return
    for key in keys:
        limit = f"{key.rate:g} a second" if key.rate else "no limit"
        expiry = f"expires {key.expires:%Y-%m-%d %H:%M}" if key.expires else "does not expire"
        print(f"{key.name}: {', '.join(key.scopes)}; {limit}; created {key.created:%Y-%m-%d}, {expiry}")
    if not keys:
        print(f"{path} has no key: every call but those of the admin key is refused")


@app.command()
def revoke(name: Name, file: File = None) -> None:
    """Delete a key. Without the last one the service stays closed.

    To open it to all, delete the file, and restart the service without TURRET_REQUIRE_KEYS.

    Example: `turret keys revoke shop`
    """
    from turret.service.keys.keys import remove_key

    path = _path(file)
    remove_key(path, name)
    print(f"{name} is revoked; a service that reads {path} refuses it within a second")


def _path(file: Path | None) -> Path:
    from turret.service.settings import read_settings

    return file or read_settings().keys
