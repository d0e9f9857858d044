"""Writes the names of each public module onto its API page, so that it can be read in a repository.

``python docs/_site/names.py`` writes all pages anew; with ``--check`` it only says which are stale.
The site has the whole docstrings below each table, where the repository shows a line with colons.
"""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))

_BEGIN, _END = "<!-- names, by docs/_site/names.py -->\n", "<!-- end of names -->\n\n"
_OLD = re.compile(f"{_BEGIN}.*?{_END}", re.DOTALL)
_STUB = re.compile(
    r"^::: (?P<module>[\w.]+)\n(?:    options:\n(?:      members: \[(?P<only>.*)\]\n)?)?",
    re.MULTILINE,
)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


@cache
def _package(name: str) -> Any:
    return griffe.load(name, search_paths=[ROOT / "src"])


def names(module: str, only: set[str]) -> dict[str, str]:
    """The public names of a module that have a docstring, with the first sentence of it.

    Args:
        module: with its dots.
        only: the names to take; empty for all.
    """
    package, _, rest = module.partition(".")
    _package("ppo_mask")  # The game has names of it.
    loaded = _package(package)[rest]
    found: dict[str, str] = {}
    for name, member in loaded.members.items():
        if not member.is_public or (only and name not in only):
            continue
        target = member.final_target if member.is_alias else member
        if target.docstring is not None:
            paragraph = " ".join(target.docstring.value.split("\n\n")[0].split())
            found[name] = _ROLE.sub(r"`\1`", paragraph.replace("``", "`").partition(". ")[0])
    return found


def page(text: str) -> str:
    """A page with its tables as they should be."""

    def with_table(stub: re.Match[str]) -> str:
        only = set(re.findall(r"\w+", stub["only"] or ""))
        rows = [
            f"| `{name}` | {said.rstrip('.').replace('|', chr(92) + '|')} |\n"
            for name, said in sorted(names(stub["module"], only).items())
        ]
        head = f"| `{stub['module']}` | |\n|---|---|\n"
        return f"{_BEGIN}\n{head}{''.join(rows)}\n{_END}{stub[0]}" if rows else stub[0]

    return _STUB.sub(with_table, _OLD.sub("", text))


if __name__ == "__main__":
    stale = {path: new for path in PAGES if (new := page(path.read_text())) != path.read_text()}
    for path, new in stale.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(new)
    raise SystemExit("--check" in sys.argv and bool(stale))
