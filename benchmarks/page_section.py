"""How fast the page is, as a section of docs/page.md."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "page.md"


def page_section(page: dict[str, Any]) -> str:
    """The figures of benchmarks/page.py in Markdown."""
    machine = page["machine"]
    rows = (
        (
            "first contentful paint, nothing in the cache",
            f"{page['first_paint_ms']:.0f} ms (worst {page['first_paint_worst_ms']:.0f})",
        ),
        ("all files of the page, compressed", f"{page['assets_kb']:.0f} kB"),
        (
            "search, from the call to the parsed answer",
            f"{page['search_p50_ms']:.1f} ms (p99 {page['search_p99_ms']:.1f})",
        ),
        (
            "from a click to the painted recommendations",
            f"{page['recommend_to_paint_ms']:.0f} ms (p90 {page['recommend_to_paint_p90_ms']:.0f})",
        ),
        ("frames a second while the map of all items is dragged", f"{page['map_fps']:.0f}"),
        ("the same, zoomed in tenfold", f"{page['map_zoomed_fps']:.0f}"),
    )
    return "\n".join(
        [
            f"On a service of {page['items']:,} items, in Chromium without a GPU on the same "
            f"{machine['cores']} cores (`python -m benchmarks.page --json`, {machine['date'][:10]}):",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
            "",
        ]
    )
