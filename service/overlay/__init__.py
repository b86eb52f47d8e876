"""Items added, changed and withdrawn since a bundle was made, merged into its answers."""

__all__ = ["fresh", "item_overlay_cache", "item_writer", "unknown_names"]
