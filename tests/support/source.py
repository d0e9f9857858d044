"""The packages' source, and what its files import."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """The modules that a file imports, wherever in it, and the names that it takes from them."""
    package = path.relative_to(SOURCE).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, (node.module,))))
            yield from ((module, alias.name) for alias in node.names)
