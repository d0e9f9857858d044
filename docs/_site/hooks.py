"""Adds pages and files from outside of ``docs`` to the site, rewrites links, lists all settings.

Every page is written for the repository, where its relative links work. Links that lead out of
``docs``, or from the root into it, are changed here to lead to the same thing on the site.
"""

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from hackmatrix.task import DEFAULTS
from ppo_mask.runner import RunConfig, Setting, settings

ROOT = Path(__file__).parents[2]

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "src/hackmatrix/champion/README.md": "champion.md",
}
"""Where pages from outside of ``docs`` are on the site."""

FILES = (
    "LICENSE",
    "CITATION.cff",
    *(f"examples/{path.name}" for path in sorted(ROOT.glob("examples/*.*"))),
)
"""Files that pages link to, copied unchanged."""

STYLE = {"docs/_site/site.css": "site.css"}

INDEX = "llms.txt"
"""The index of the site for language models, as https://llmstxt.org describes it."""

_SETTINGS = "<!-- settings -->"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_FETCHED = re.compile(r"""<(?:[^>]*\ssrc|link\s[^>]*href)=["']?((?:https?:)?//[^"'\s>]+)""")
_BADGES = re.compile(r"(?:^\[!\[.*\n)+\n", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and files from outside of ``docs``."""
    for source, target in {**PAGES, **STYLE, **{file: file for file in FILES}}.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, **_: Any) -> None:
    """Keeps the navigation, for the index: pages have their titles later."""
    config.extra["nav"] = nav


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the index of all pages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    Path(config.site_dir, INDEX).write_text(index(config.extra["nav"], project), encoding="utf-8")


def index(nav: Navigation, project: dict[str, Any]) -> str:
    """The navigation as Markdown, with a heading for each section and a link for each page."""
    lines = [f"# {project['name']}", "", f"> {project['description']}", "", "## Start", ""]
    for item in nav.items:
        if item.is_section:
            lines += ["", f"## {item.title}", ""]
        for page in item.children or [item]:
            lines.append(f"- [{page.title}]({project['urls']['Documentation']}{page.url})")
    return "\n".join(lines) + "\n"


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """The page unchanged; refused if a browser would fetch something from elsewhere."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri}: it would be fetched from elsewhere: {found[1]}")
    return output


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrites a page's links for the site; blocks of code stay as they are."""
    here = page.file.src_uri
    sources = {target: source for source, target in PAGES.items()}
    source = sources.get(here, f"docs/{here}")

    def moved(match: re.Match[str]) -> str:
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        on_site = PAGES.get(aim, aim.removeprefix("docs/"))
        return posixpath.relpath(on_site, posixpath.dirname(here) or ".")

    markdown = _BADGES.sub("", markdown)  # They would be fetched from elsewhere.
    if _SETTINGS in markdown:
        markdown = markdown.replace(_SETTINGS, all_settings())
    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(moved, text) for text in parts[::2]]
    return "".join(parts)


def all_settings() -> str:
    """A table of each group of HackMatrix's settings, with the library's defaults."""
    plain = settings(RunConfig(DEFAULTS.environment))
    groups: dict[str, list[str]] = {}
    for name, setting in settings(DEFAULTS).items():
        groups.setdefault(setting.group, []).append(_row(setting, plain[name]))
    head = "| flag | default | | takes | |\n|---|---|---|---|---|\n"
    groups["HackMatrix"] = groups.pop("environment")
    titles = {group: group.capitalize() for group in groups}
    titles |= {"ppo": "PPO", "HackMatrix": "HackMatrix"}
    return "\n".join(
        f"## {titles[group]}\n\n{head}{''.join(rows)}" for group, rows in groups.items()
    )


def _row(setting: Setting, plain: Setting) -> str:
    flags = ", ".join(f"`{flag}`" for flag in setting.flags)
    default = f"`{plain.default}`"
    if setting.default != plain.default:
        default += f"; HackMatrix `{setting.default}`"
    takes = ", ".join(filter(None, (setting.type, setting.rules.limits)))
    marks = {"resume": setting.rules.changeable, "phases": setting.rules.phased}
    mark = ", ".join(name for name, is_marked in marks.items() if is_marked)
    return f"| {flags} | {default} | {setting.rules.help} | {takes} | {mark} |\n"
