"""The site builds without a warning, and what its own tools do."""

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import griffe
import pytest
from mkdocs.exceptions import PluginError

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


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_names_on_the_api_pages_are_those_of_the_modules(path: Path) -> None:
    text = path.read_text()
    assert tool("names").page(text) == text, "write them anew: python docs/_site/names.py"


def test_a_stale_table_is_written_anew() -> None:
    fresh = tool("names").page("# Errors\n\n::: ppo_mask.errors\n")
    assert "| `RunError` | " in fresh
    assert tool("names").page(fresh.replace("`RunError`", "`Gone`")) == fresh


@pytest.mark.optimized
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


def tool(name: str) -> ModuleType:
    return load(f"docs/_site/{name}.py")


def page(path: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=path))


@pytest.mark.parametrize(
    ("where", "link", "on_site"),
    [
        ("index.md", "docs/tuning.md#lessons", "tuning.md#lessons"),
        ("index.md", "docs/images/a.gif", "images/a.gif"),
        ("index.md", "CONTRIBUTING.md", "contributing.md"),
        ("tpu.md", "../examples/tpu_startup.sh", "examples/tpu_startup.sh"),
        ("tpu.md", "../README.md#watch", "index.md#watch"),
        ("tpu.md", "support.md", "support.md"),
        ("tpu.md", "#speed", "#speed"),
        ("tpu.md", "https://a.org/docs/x", "https://a.org/docs/x"),
        ("api/hackmatrix.md", "../architecture.md#the-game", "../architecture.md#the-game"),
    ],
)
def test_links_lead_to_the_same_on_the_site(where: str, link: str, on_site: str) -> None:
    code = "\n\n```python\nx[0](docs/a.md)\n```\n"
    moved = tool("hooks").on_page_markdown(f"[a]({link}){code}", page(where))
    assert moved == f"[a]({on_site}){code}"


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
    assert hooks.on_post_page(good, page("a.md")) == good
    with pytest.raises(PluginError, match=r"a\.md: it would be fetched from elsewhere"):
        hooks.on_post_page(good + part, page("a.md"))


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
