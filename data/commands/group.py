"""A group of commands whose modules are imported when they are needed."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class ImportingGroup(TyperGroup):
    """A group that imports some of its commands, such as those whose options take long to derive.

    Attributes:
        names: the first commands of the help in their order, and the module that has each in its `app`; None
            for commands that the group has itself.
    """

    names: ClassVar[Mapping[str, str | None]]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*self.names, *(name for name in super().list_commands(ctx) if name not in self.names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None where there is no such one."""
        if (module := self.names.get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        return typer.main.get_group(import_module(module).app).commands[cmd_name]
