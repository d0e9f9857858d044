"""The packages' source, what its files import, and programs that are in no package."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


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


def load(path: str) -> ModuleType:
    """A program of the repository as a module."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
