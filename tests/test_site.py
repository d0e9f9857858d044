"""Links in README and docs, the site, which builds without a warning, and what its own tools do.

Links are checked as GitHub resolves them: relative ones lead to files and headings that exist, and
of others the form is looked at. That they lead to the same places on the site, where headings get
the same anchors, is checked by ``mkdocs build --strict``.
"""

import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.parse import unquote, urlsplit

import griffe
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mkdocs.exceptions import PluginError

from hackmatrix.task import DEFAULTS
from ppo_mask.runner import settings
from source import ROOT, load

API = sorted(ROOT.glob("docs/api/*.md"))
DOCUMENTED = re.findall(r"^::: ([\w.]+)$", "\n".join(map(Path.read_text, API)), re.MULTILINE)


def modules(package: str) -> list[str]:
    """The public modules of a package, and the rooms that have names of their own."""
    source = ROOT / "src"
    found: list[str] = []
    for path in (source / package).rglob("*.py"):
        *parts, last = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts) if last == "__init__" else ".".join((*parts, last))
        has_names = last != "__init__" or (len(parts) > 1 and "\n__all__" in path.read_text())
        if has_names and not any(part.startswith("_") for part in name.split(".")):
            found.append(name)
    return sorted(found)


def test_every_public_module_has_its_place() -> None:
    library = modules("ppo_mask")
    assert set(library) <= set(DOCUMENTED) <= {*library, *modules("hackmatrix")}
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


@pytest.mark.optimized
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


def tool(name: str) -> ModuleType:
    return load(f"docs/_site/{name}.py")


def rendered(path: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=path))


@pytest.mark.parametrize(
    ("where", "link", "on_site"),
    [
        ("index.md", "docs/tuning.md#lessons", "tuning.md#lessons"),
        ("index.md", "docs/images/a.gif", "images/a.gif"),
        ("index.md", "CONTRIBUTING.md", "contributing.md"),
        ("a.md", "../examples/tpu_startup.sh", "examples/tpu_startup.sh"),
        ("a.md", "../README.md#watch", "index.md#watch"),
        ("a.md", "support.md", "support.md"),
        ("a.md", "#speed", "#speed"),
        ("a.md", "https://a.org/docs/x", "https://a.org/docs/x"),
        ("api/hackmatrix.md", "../architecture.md#the-game", "../architecture.md#the-game"),
    ],
)
def test_links_lead_to_the_same_on_the_site(where: str, link: str, on_site: str) -> None:
    code = "\n\n```python\nx[0](docs/a.md)\n```\n"
    moved = tool("hooks").on_page_markdown(f"[a]({link}){code}", rendered(where))
    assert moved == f"[a]({on_site}){code}"


def test_all_settings_are_on_a_page() -> None:
    text = tool("hooks").on_page_markdown("<!-- settings -->", rendered("settings.md"))
    assert "| `--ent-coef` | `0.01`; HackMatrix `0.15` |" in text
    assert text.count("\n| `--") == len(settings(DEFAULTS))


@pytest.mark.parametrize(
    "part",
    [
        '<script async src="https://a.org/b.js">',
        "<img alt='x' src='//a.org/b.png'>",
        '<link rel="stylesheet" href="http://a.org/b.css">',
    ],
)
def test_a_page_that_fetches_from_elsewhere_is_refused(part: str) -> None:
    hooks, good = tool("hooks"), '<a href="https://a.org"><img src="images/a.png"></a>'
    assert hooks.on_post_page(good, rendered("a.md")) == good
    with pytest.raises(PluginError, match=r"a\.md: it would be fetched from elsewhere"):
        hooks.on_post_page(good + part, rendered("a.md"))


def test_roles_become_links_and_wrong_ones_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "some"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("class A:\n    def go(self):\n        pass\n")
    (package / "b.py").write_text(
        "from some.a import A\n\n"
        'def f():\n    """:class:`A`, :meth:`A.go`, :func:`~some.b.f`, :mod:`some`, :func:`g`."""\n'
    )
    extensions = griffe.load_extensions(tool("roles").Roles)
    with caplog.at_level(logging.WARNING):
        loaded = griffe.load("some", search_paths=[tmp_path], extensions=extensions)
    docstring = loaded["b.f"].docstring
    assert docstring is not None
    links = re.findall(r'<autoref identifier="(\S+)" optional>`(\S+)`</autoref>', docstring.value)
    assert links == [("some.a.A", "A"), ("some.a.A.go", "A.go"), ("some.b.f", "f")]
    assert docstring.value.endswith(", `some`, `g`.")
    assert [r.getMessage() for r in caplog.records] == ["roles: some.b.f: :func:`g` names nothing"]


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


@pytest.mark.parametrize("page", ["architecture", "implementation_details"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / f"{page}.md").read_text())
    roots = (ROOT, ROOT / "src" / "ppo_mask")
    assert named
    assert [x for x in named if not any((root / x).is_file() for root in roots)] == []


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
