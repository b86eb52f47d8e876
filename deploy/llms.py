"""The documents as text for language models, as llmstxt.org has it: an index, and all pages in one file."""

import re
from collections.abc import Iterable, Mapping

_ROW = re.compile(r"^\| \[([^\]]+)\]\((\w+\.md)\) \| (.*?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def described_pages(index: str) -> dict[str, str]:
    """What the tables of the index say about each page, as plain text by the name of its file."""
    return {page: _LINK.sub(r"\1", words) for _, page, words in _ROW.findall(index)}


def llms_txt(
    title: str, summary: str, sections: Iterable[Mapping[str, object]], about: Mapping[str, str]
) -> str:
    """The index: a section has a line for each page, with its address and what `about` says of it."""
    lines = [f"# {title}", "", f"> {summary}"]
    for section in sections:
        for name, pages in section.items():
            lines += ["", f"## {name}", ""]
            for entry in pages if isinstance(pages, list) else []:
                named = entry if isinstance(entry, dict) else {"The front page": entry}
                words, page = next(iter(named.items()))
                lines.append(f"- [{words}]({page})" + (f": {about[page]}" if about.get(page) else ""))
    return "\n".join(lines) + "\n"


def llms_full_txt(pages: Mapping[str, str]) -> str:
    """All pages one after the other, each after the name of its file."""
    return "\n\n".join(f"<!-- {name} -->\n\n{text.strip()}" for name, text in pages.items()) + "\n"
