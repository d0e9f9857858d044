"""What of the site can be checked without building it; ``mkdocs build --strict`` does the rest."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTED = re.findall(
    r"^::: ([\w.]+)$",
    "\n".join(page.read_text() for page in ROOT.glob("docs/api/*.md")),
    re.MULTILINE,
)


def modules(package: str) -> list[str]:
    """The public modules of a package, sub-packages' too."""
    source = ROOT / "src"
    paths = [path.relative_to(source) for path in (source / package).rglob("*.py")]
    named = [path.with_suffix("").parts for path in paths if path.name != "__init__.py"]
    return sorted(".".join(n) for n in named if not any(part.startswith("_") for part in n))


def test_every_public_module_of_the_library_has_its_place() -> None:
    of_the_library = [name for name in DOCUMENTED if name.startswith("ppo_mask.")]
    assert sorted(of_the_library) == modules("ppo_mask")


def test_what_is_documented_exists() -> None:
    assert set(DOCUMENTED) <= {*modules("ppo_mask"), *modules("hackmatrix")}
    assert len(DOCUMENTED) == len(set(DOCUMENTED))
