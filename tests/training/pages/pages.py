"""A page taken apart, as a browser reads it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br"}
# Elements that load or run something.
ACTIVE = {
    "script",
    "link",
    "img",
    "iframe",
    "object",
    "embed",
    "base",
    "form",
    "audio",
    "video",
    "use",
    "image",
}


@dataclass
class Page(HTMLParser):
    """The tags, the attributes and the texts of a page."""

    source: str
    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert not self.open_tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open_tags[-1] != "style":
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        """All texts, in order."""
        return " ".join(self.texts)

    def check_self_contained(self) -> None:
        """Assert that the page loads nothing, runs nothing, and leads nowhere else."""
        assert not ACTIVE & set(self.tags)
        for tag, name, value in self.attributes:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset", "style", "xlink:href", "action"), (tag, name)
            if name == "href":
                assert value.startswith("#"), value
