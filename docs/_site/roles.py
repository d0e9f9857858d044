"""Sphinx's roles in docstrings as links on the site.

Docstrings say ``:class:`Metric``` and the like, which is short, readable without a site, and known
to editors. A name is looked up in the scope of its docstring, as Python would. An unknown name is a
warning, which fails a strict build; a name of something that is not on the site stays text.
"""

import re
from typing import Any

import griffe
from mkdocs.plugins import get_plugin_logger

_log = get_plugin_logger("roles")
_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`(~?)([\w.]+)`")


class Roles(griffe.Extension):
    """Turns the roles of a package's docstrings into cross-references."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Rewrites every docstring of the package."""
        self._visit(pkg, loader)

    def _visit(self, each: griffe.Object, loader: griffe.GriffeLoader) -> None:
        if each.docstring:
            each.docstring.value = _ROLE.sub(
                lambda role: _link(role, each, loader), each.docstring.value
            )
        for member in each.members.values():
            if not member.is_alias:
                self._visit(member, loader)


def _link(role: re.Match[str], each: griffe.Object, loader: griffe.GriffeLoader) -> str:
    short, name = role.groups()
    text = name.rpartition(".")[2] if short else name
    path = _found(name, each, loader)
    if path is None:
        _log.warning("%s: %s names nothing", each.path, role[0])
    # A package's name alone is also a page's heading: it would lead there.
    if path is None or "." not in path:
        return f"`{text}`"
    return f'<autoref identifier="{path}" optional>`{text}`</autoref>'


def _found(name: str, each: griffe.Object, loader: griffe.GriffeLoader) -> str | None:
    """The path of what a name refers to in the scope of an object's docstring."""
    paths = [name]
    try:
        first, _, rest = name.partition(".")
        paths.append(".".join(filter(None, (each.resolve(first), rest))))
    except griffe.NameResolutionError:
        pass
    for path in paths:
        try:
            found = loader.modules_collection[path]
            return found.final_target.path if found.is_alias else found.path
        except (KeyError, griffe.AliasResolutionError):
            continue
    return None
