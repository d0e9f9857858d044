"""What is on the site, and what the site's own tools do.

That links lead to files and headings that exist, and that the site builds without a warning, is
checked by ``mkdocs build --strict``: ``.ci/run docs``. All pages of the repository are on the site.
"""

import logging
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import griffe
import pytest
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


def tool(name: str) -> ModuleType:
    return load(f"docs/_site/{name}.py")


def rendered(path: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=path))


def test_links_lead_to_the_same_on_the_site_and_code_stays_as_it_is() -> None:
    code = "\n\n```python\nx[0](docs/a.md)\n```\n"
    links = "[a](docs/tuning.md#lessons) [b](CONTRIBUTING.md) [c](https://a.org/docs/x)"
    moved = tool("hooks").on_page_markdown(links + code, rendered("index.md"))
    assert moved == "[a](tuning.md#lessons) [b](contributing.md) [c](https://a.org/docs/x)" + code


def test_badges_of_the_readme_are_left_out() -> None:
    text = "# A\n\n[![B](https://b.org/b.svg)](https://b.org)\n[![C](https://c.org)](d.md)\n\nE\n"
    assert tool("hooks").on_page_markdown(text, rendered("index.md")) == "# A\n\nE\n"


def test_the_index_has_a_link_for_each_page() -> None:
    def item(title: str, url: str = "", children: object = None) -> SimpleNamespace:
        return SimpleNamespace(title=title, url=url, children=children, is_section=bool(children))

    nav = SimpleNamespace(items=[item("A", "a.html"), item("B", children=[item("C", "b/c.html")])])
    project = {"name": "n", "description": "d", "urls": {"Documentation": "https://s/"}}
    assert tool("hooks").index(nav, project).splitlines() == [
        *("# n", "", "> d", "", "## Start", "", "- [A](https://s/a.html)"),
        *("", "## B", "", "- [C](https://s/b/c.html)"),
    ]


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


@pytest.mark.parametrize("page", ["architecture", "implementation_details"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / f"{page}.md").read_text())
    roots = (ROOT, ROOT / "src" / "ppo_mask")
    assert named
    assert [x for x in named if not any((root / x).is_file() for root in roots)] == []
