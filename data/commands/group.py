"""A group of commands whose modules are imported when they are needed."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class ImportingGroup(TyperGroup):
    """A group that imports a command when it is called or described: deriving the options of all takes long.

    Attributes:
        names: the first commands of the help in their order, and the module that has each in its `app`, or
            whose `app` is a group of this name; None for commands that the group has itself.
    """

    names: ClassVar[Mapping[str, str | None]]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*self.names, *(name for name in super().list_commands(ctx) if name not in self.names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None where there is no such one."""
        if (module := self.names.get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        group = _group_of(module)
        return group if group.name == cmd_name else group.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called; the refusal of an unknown one names those that are alike."""
        if args[0] not in self.list_commands(ctx):
            self.commands.update({name: self.get_command(ctx, name) for name in self.names})
        return super().resolve_command(ctx, args)


@cache
def _group_of(module: str) -> TyperGroup:
    return typer.main.get_group(import_module(module).app)
