"""What lies around the code, for people and for GitHub: it can be read, and agrees with itself."""

import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
FORMS = sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"))
OTHERS = [ROOT / ".github/dependabot.yml", ROOT / ".pre-commit-config.yaml"]
# Those with addresses of the repository, which are not known before it is published.
ADDRESSED = (
    "CITATION.cff",
    ".zenodo.json",
    ".github/ISSUE_TEMPLATE/config.yml",
    ".ci/packaging/hackmatrix/pyproject.toml",
    ".ci/packaging/conda/recipe.yaml",
    "pyproject.toml",
    "README.md",
    "examples/colab.ipynb",
)
# Of other projects, in files with our own addresses.
OTHERS_ADDRESSES = ("conda-forge/", "keraJLi/", "luchris429/")


def read(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def named(paths: list[Path]) -> list[Any]:
    return [pytest.param(path, id=path.name) for path in paths]


def ask_for(part: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / ".ci" / "run"), part]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def parts() -> list[str]:
    """Those of ``.ci/run``, by its own account."""
    return ask_for("no-such-part").stderr.partition("there are: ")[2].split()


def commands(workflow: Any) -> Iterator[str]:
    """All that its steps run, for each combination that a job's matrix makes."""
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for values in itertools.product(*matrix.values()):
            for step in job.get("steps", []):
                text = step.get("run", "")
                for name, value in zip(matrix, values, strict=True):
                    text = text.replace(f"${{{{ matrix.{name} }}}}", value)
                yield text


def parts_called(workflow: Any) -> list[str]:
    calls = re.findall(r"\.ci/run\b(.*)", "\n".join(commands(workflow)))
    return [part for call in calls for part in call.split() or ["all of them"]]


def pythons() -> list[str]:
    """The versions that the classifiers promise."""
    found = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c)
        for c in PROJECT["classifiers"]
    ]
    return [match[1] for match in found if match]


@pytest.mark.parametrize("part", ["no-such-part", "lint docs", ""])
def test_a_part_that_there_is_not_is_refused_in_one_line(part: str) -> None:
    done = ask_for(part)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"'{part}'" in line


@pytest.mark.parametrize("script", [".ci/run", ".ci/packaging/check"])
def test_tests_that_are_named_are_there(script: str) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", (ROOT / script).read_text())
    assert named
    for file, test in named:
        text = (ROOT / file).read_text()
        assert not test or f"def {test}(" in text, f"{file}::{test}"


def test_workflows_run_every_part_and_no_other() -> None:
    called = [part for path in WORKFLOWS for part in parts_called(read(path))]
    assert set(called) == set(parts())
    assert len(parts()) == 13


@pytest.mark.parametrize("path", named(WORKFLOWS))
def test_workflows_may_do_little_and_pin_what_they_use(path: Path) -> None:
    workflow = read(path)
    assert set(workflow["permissions"].values()) <= {"read"}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        used = [job.get("uses"), *(step.get("uses") for step in job.get("steps", []))]
        for action in filter(None, used):
            assert re.search(r"@(release/)?v\d+$", action) or action.startswith("./"), action


def test_every_python_that_is_promised_is_tested() -> None:
    fast, others = (
        read(f".github/workflows/{name}.yml")["jobs"]["fast"]["strategy"]["matrix"]["python"]
        for name in ("tests", "nightly")
    )
    assert {*pythons()} <= {*fast, *others}
    assert PROJECT["requires-python"] == f">={fast[0]}"
    check = (ROOT / ".ci/packaging/check").read_text()
    packaged = re.search(r"^for python in (.*); do$", check, re.MULTILINE)
    assert packaged is not None
    assert packaged[1].split() == pythons()


def test_ruff_is_the_same_everywhere() -> None:
    repos = read(".pre-commit-config.yaml")["repos"]
    (version,) = (repo["rev"][1:] for repo in repos if "ruff" in repo["repo"])
    assert f"ruff=={version}" in PYPROJECT["dependency-groups"]["dev"]


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["authors"] == PROJECT["authors"]


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("name", ADDRESSED)
def test_addresses_are_the_projects(name: str) -> None:
    owner = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    ours = (
        PROJECT["urls"]["Repository"],
        PROJECT["urls"]["Documentation"],
        f"https://colab.research.google.com/github/{owner}/",
    )
    text = (ROOT / name).read_text()
    hosts = r"(?:github\.com|[\w-]+\.github\.io|colab\.research\.google\.com/github)"
    addresses = re.findall(rf"https://{hosts}/[\w./-]*", text)
    assert addresses
    others = tuple(f"https://github.com/{other}" for other in OTHERS_ADDRESSES)
    assert [x for x in addresses if not x.startswith((*ours, *others))] == []
    assert all(url.startswith(ours) for url in PROJECT["urls"].values())


def as_pypi_shows_it() -> str:
    """The README as hatch-fancy-pypi-readme makes it."""
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / hook["fragments"][0]["path"]).read_text()
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    return text.replace("$HFPR_VERSION", PROJECT["version"])


def test_pypi_shows_the_readme_with_links_to_the_tag() -> None:
    tokens = MarkdownIt().parse(as_pypi_shows_it())
    within = [child for token in tokens for child in token.children or ()]
    links = [str(x.attrs.get("href") or x.attrs.get("src")) for x in within if x.attrs]
    links += [str(y.attrs["src"]) for x in within for y in x.children or () if "src" in y.attrs]
    assert [x for x in links if not x.startswith(("https://", "#"))] == []
    ours = re.escape(PROJECT["urls"]["Repository"])
    of_the_tag = rf"{ours}/(blob|raw)/v{re.escape(PROJECT['version'])}/([^#]+)"
    found = [match.groups() for x in links if (match := re.match(of_the_tag, x))]
    assert len(found) > 20
    pictures = [path for kind, path in found if kind == "raw"]
    assert pictures == ["docs/images/known.png", "docs/images/champion.gif"]
    assert [path for _, path in found if not (ROOT / path).exists()] == []


def test_drafts_for_other_places_say_the_same() -> None:
    zenodo, citation = read(".zenodo.json"), read("CITATION.cff")
    for ours, theirs in (("title", "title"), ("license", "license"), ("keywords", "keywords")):
        assert zenodo[theirs] == citation[ours]
    assert zenodo["description"] == citation["abstract"]
    assert zenodo["creators"] == citation["authors"] == PROJECT["authors"]
    recipe = read(".ci/packaging/conda/recipe.yaml")
    assert recipe["context"]["version"] == PROJECT["version"]
    needs = {each.replace(" ", "").lower() for each in recipe["requirements"]["run"][1:]}
    assert needs == {each.lower() for each in PROJECT["dependencies"]}
    thin = tomllib.loads((ROOT / ".ci/packaging/hackmatrix/pyproject.toml").read_text())["project"]
    assert thin["scripts"].items() <= PROJECT["scripts"].items()
    assert (thin["authors"], thin["license"]) == (PROJECT["authors"], PROJECT["license"])


@pytest.mark.parametrize("group", ["test", "dev"])
def test_what_is_locked_is_what_is_asked_for(group: str) -> None:
    """Each requirement of the group has a version for continuous integration."""
    locked = (ROOT / f".ci/locks/{group}.txt").read_text()
    names = {re.split(r"==", line)[0] for line in locked.splitlines()}
    assert not re.search(r"^(-e|ppo-mask)", locked, re.MULTILINE)

    def asked(group: str) -> Iterator[str]:
        for each in PYPROJECT["dependency-groups"][group]:
            if isinstance(each, dict):
                yield from asked(each["include-group"])  # pyright: ignore
            else:
                yield re.split(r"[^\w.-]", each)[0].lower()

    wanted = {*asked(group), *(re.split(r"[^\w-]", x)[0].lower() for x in PROJECT["dependencies"])}
    assert wanted - {"ppo-mask"} <= names


@pytest.mark.parametrize("path", named([*FORMS, *OTHERS]))
def test_what_github_and_pre_commit_read_can_be_read(path: Path) -> None:
    assert read(path)
