"""Links in README and docs: relative ones lead to files and headings that exist.

They are checked as GitHub resolves them. That they lead to the same places on the site, where
headings get the same anchors, is checked by ``mkdocs build --strict``. Links to elsewhere are not
followed; only their form is looked at.
"""

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
PARSER = MarkdownIt("commonmark").enable("table")


def inline(text: str) -> list[Token]:
    """All that stands in a page's paragraphs, headings and tables; code is left out."""
    return [child for token in PARSER.parse(text) for child in token.children or []]


def links(text: str) -> list[str]:
    found = [token.attrs.get("href") or token.attrs.get("src") for token in inline(text)]
    return [str(link) for link in found if link is not None]


def anchors(text: str) -> set[str]:
    """The headings' anchors, as GitHub makes them; of equal ones, the second gets a -1."""
    tokens = PARSER.parse(text)
    headings = [tokens[n + 1] for n, token in enumerate(tokens) if token.type == "heading_open"]
    names: list[str] = []
    for heading in headings:
        words = "".join(child.content for child in heading.children or [])
        names.append(re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-"))
    count: Counter[str] = Counter()
    found: set[str] = set()
    for name in names:
        found.add(f"{name}-{count[name]}" if count[name] else name)
        count[name] += 1
    return found


def problem(page: Path, link: str) -> str | None:
    """What is wrong with a link, if anything is."""
    parts = urlsplit(link)
    if parts.scheme:
        plain = parts.scheme == "https" and "." in parts.netloc and not re.search(r"\s", link)
        return None if plain else "a link to elsewhere begins with https:// and a host"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(ROOT):
        return "leads out of the repository"
    if not target.is_file():
        return "there is no such file"
    if parts.fragment and target.suffix != ".md":
        return "only pages have headings"
    if parts.fragment and parts.fragment not in anchors(target.read_text()):
        return "there is no such heading"
    return None


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    found = {link: problem(page, link) for link in links(page.read_text())}
    assert {link: what for link, what in found.items() if what} == {}


def test_links_that_lead_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text(
        "# One `two`, three\n\n# Same\n\n# Same\n\n"
        "[a](#one-two-three) [b](#same-1) [c](a.md#same) ![d](a.md) [e](https://a.org/b?c#d)\n\n"
        "| [f](#same) |\n|---|\n| [no](#same-2) |\n\n"
        "[no](b.md) [no](../c.md) ![no](d.png) [no](http://a.org) [no](https://) [no][x]\n\n"
        "```python\na[0](nothing.md)\n```\n\n[x]: e.md\n"
    )
    found = [problem(page, link) for link in links(page.read_text())]
    assert found[:6] == [None] * 6
    assert len(found) == 13
    assert all(found[6:])
