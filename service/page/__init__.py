"""The files of the page that the service shows in a browser."""

__all__: list[str] = []
