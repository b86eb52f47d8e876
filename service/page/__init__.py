"""The page that the service shows in a browser, and its third-party files."""

__all__: list[str] = ["vendored"]
