"""Commands that take the settings of preparation as options."""

from typing import Any

from typer.core import TyperCommand

# Of `turret data prepare`, those that concern events alone.
_OF_EVENTS = ("on_bad", "format", "columns", "filters")


class PrepareCommand(TyperCommand):
    """Adds the options of the settings, whose classes are imported when the command is run or shown."""

    sections: tuple[str, ...] | None = None
    """The sections of settings, or settings, that have options; None: all."""

    @property
    def params(self) -> list[Any]:
        """The parameters of the function, with the options of the settings before the last of them."""
        if len(self._params) == len(self._own):
            from turret.data.preparing.options import click_options

            self._params[-1:-1] = click_options(self.sections)
        return self._params

    @params.setter
    def params(self, own: list[Any]) -> None:
        self._params, self._own = own, {parameter.name for parameter in own}

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the values of the settings' options are `ctx.obj`."""
        ctx.obj = {name: ctx.params.pop(name) for name in set(ctx.params) - self._own}
        return super().invoke(ctx)


class AppendCommand(PrepareCommand):
    """Adds the options that may differ between the first log and a later one."""

    sections = ("on_bad", "format", "columns", "items", "users", "filters.default_kind")


class EventsCommand(PrepareCommand):
    """Adds the options that concern the reading of events."""

    sections = _OF_EVENTS
