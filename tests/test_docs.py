"""Every block of code in README and docs runs: programs, and commands in their order.

But for guides to machines that are not here, and to work on the project itself: their commands are
``bash`` blocks, not ``sh``. Bash reads them, and their flags are compared with what there is.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import page as page_runner
from hackmatrix import cli
from hackmatrix.task import DEFAULTS
from ppo_mask.envs import check_env
from ppo_mask.errors import RunError
from ppo_mask.runner._reader import merge, parse_flags

ROOT = Path(__file__).parents[1]
# Its blocks are drawings: of the flow, and of types without their bodies.
DRAWINGS = ROOT / "docs" / "architecture.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
# Whose commands are for other machines, take long, or change this one.
ELSEWHERE = (
    "benchmarks.md",
    "checkpoints.md",
    "curriculum.md",
    "installation.md",
    "learning.md",
    "releasing.md",
    "running_elsewhere.md",
    "seeds.md",
    "CONTRIBUTING.md",
)
SET_UP = re.compile(
    r"python3 -m venv( --upgrade-deps)? \.venv && "
    r"\.venv/bin/pip install -e \.( --group test)? && \.venv/bin/"
)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    tokens = MarkdownIt("commonmark").parse(page.read_text())
    return [(token.info, token.content) for token in tokens if token.type == "fence"]


def blocks_here(page: Path) -> list[tuple[str, str]]:
    """Those that are run: all but the commands for elsewhere."""
    return [x for x in blocks(page) if x[0] != "bash" or page.name not in ELSEWHERE]


def run(command: list[str], folder: Path, given: str = "") -> str:
    # `python` is this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell_lines(text: str) -> list[str]:
    """The commands but for those that set up the project; these have tests of their own."""
    return [line for line in text.splitlines() if not SET_UP.match(line)]


LIBRARIES = {
    "export.md": ("onnx", "onnxruntime"),
    "other_libraries.md": ("gymnax", "jumanji", "navix", "pettingzoo", "pgx", "pyspiel", "shimmy"),
    "recipes.md": ("craftax", "jaxmarl", "xminigrid"),
}


def marks(page: str) -> list[pytest.MarkDecorator]:
    absent = [x for x in LIBRARIES.get(page, ()) if importlib.util.find_spec(x) is None]
    reason = f"{', '.join(absent)} not installed; see .ci/run"
    skipped = [pytest.mark.skipif(bool(absent), reason=reason)]
    # Two games are compiled, each in several forms: two minutes.
    return [*skipped, pytest.mark.nightly] if page == "recipes.md" else skipped


RUN = [
    pytest.param(page, id=page.name, marks=marks(page.name))
    for page in PAGES
    if page != DRAWINGS and blocks_here(page)
]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    steps: list[tuple[str, str]] = []
    for language, text in blocks_here(page):
        file = re.match(r"# (\w+\.(?:py|yaml))", text)
        assert language in ("python", "sh") or file, f"a block of {language}: no test runs it"
        if language == "sh":
            steps += [("sh", line) for line in shell_lines(text)]
        elif file:
            assert not (tmp_path / file[1]).exists(), "a page has one file of a name"
            (tmp_path / file[1]).write_text(text)  # The commands after it use it.
        else:
            steps.append(("python", text))
    if steps:
        run([sys.executable, page_runner.__file__], tmp_path, json.dumps(steps))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all Python programs of the docs, the examples, and one with types."""
    folder = shutil.copytree(ROOT / "examples", tmp_path_factory.mktemp("typed") / "programs")
    shutil.copy(ROOT / "tests" / "support" / "typed.py", folder / "typed.py")
    for page in PAGES:
        for n, (language, text) in enumerate(blocks(page) if page != DRAWINGS else ()):
            if language == "python":
                file = re.match(r"# (\w+\.py)", text)
                path = folder / (file[1] if file else f"{page.stem}_{n}.py")
                assert not path.exists(), path
                path.write_text(text)
    return folder


CHECKERS = {
    "pyright": ["--pythonpath", sys.executable],  # In its default mode: there is no configuration.
    "mypy": ["--check-untyped-defs", "--ignore-missing-imports"],
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_accept_all_programs(checker: str, programs: Path) -> None:
    pytest.importorskip(checker)
    absent = [x for name in LIBRARIES for x in LIBRARIES[name] if not importlib.util.find_spec(x)]
    left_out = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(absent) or '-'})", re.MULTILINE)
    files = [x.name for x in programs.glob("*.py") if not left_out.search(x.read_text())]
    command = [sys.executable, "-m", checker, *CHECKERS[checker], *sorted(files)]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_find_a_name_that_is_not_there(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker)
    (tmp_path / "typo.py").write_text("import ppo_mask as pm\n\nprint(pm.Trainr)\n")
    command = [sys.executable, "-m", checker, *CHECKERS[checker], "typo.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("Trainr")) == (1, 1), done.stdout


def commands() -> list[tuple[str, list[str]]]:
    """The project's own commands in the blocks for elsewhere: the page, and the words of each."""
    ours = re.compile(
        r"(?:examples/(?:train_hackmatrix|compile_for)\.py |\bhackmatrix |\bflags=).*"
    )
    texts = [
        (page.name, text.replace("\\\n", " "))
        for page in PAGES
        for language, text in blocks(page)
        if language == "bash"
    ]
    # A command goes up to where it ends, or to the quotes that it is in. The startup script of a
    # TPU VM is given flags alone.
    return [
        (
            page,
            shlex.split(re.split(r"['|>;&]", found.replace("flags=", "flags "))[0], comments=True),
        )
        for page, text in texts
        for found in ours.findall(text)
    ]


def test_commands_for_elsewhere_are_ones_that_there_are() -> None:
    found = commands()
    assert {page for page, _ in found} >= {"running_elsewhere.md", "checkpoints.md"}
    assert {words[0] for _, words in found} >= {"flags", "hackmatrix"}
    for page, (program, *words) in found:
        # Of the shell's variables those that are several words are left out.
        plain = [re.sub(r"\$\w+", "1", word) for word in words if not word.startswith("${")]
        try:
            if program == "hackmatrix" and plain[0] != "train":
                cli.parser().parse_args(plain)
            else:  # After a command, or a topology.
                first = program in ("hackmatrix", "examples/compile_for.py")
                merge(DEFAULTS, parse_flags(DEFAULTS, plain[first:], ""))
        except RunError as error:
            pytest.fail(f"{page}: {program} {' '.join(words)}: {error}")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_bash_can_read_commands_for_elsewhere(name: str) -> None:
    (page,) = (page for page in PAGES if page.name == name and page.parent.name != "api")
    scripts = [text for language, text in blocks(page) if language == "bash"]
    assert scripts
    for text in scripts:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), text


def set_ups() -> list[str]:
    """The README's commands for a fresh clone."""
    text = "".join(text for language, text in blocks(ROOT / "README.md") if language == "sh")
    return [line for line in text.splitlines() if SET_UP.match(line)]


def test_the_readme_has_one_line_to_train_and_one_to_test() -> None:
    # Continuous integration runs the second as it stands.
    train, test = set_ups()
    assert "examples/train_hackmatrix.py" in train
    assert "-m pytest" in test


@pytest.mark.slow
def test_the_first_block_prints_what_it_says(tmp_path: Path) -> None:
    program = blocks(ROOT / "README.md")[0][1]
    (said,) = re.findall(r"^# (.*)$", program, re.MULTILINE)
    assert run([sys.executable, "-c", program], tmp_path) == f"{said}\n"


@pytest.mark.slow
def test_the_command_to_train_runs(tmp_path: Path) -> None:
    command = SET_UP.sub("", set_ups()[0]).replace("examples/", f"{ROOT}/examples/")
    short = "--total-timesteps 2048 --num-envs 16 --num-steps 8 --log-interval 2"
    assert "finished after 16 updates" in run(["bash", "-c", f"{command} {short}"], tmp_path)


def test_the_readme_example_is_short_and_keeps_the_protocol() -> None:
    (program,) = [text for _, text in blocks(ROOT / "README.md") if text.startswith("# walk.py")]
    assert len([line for line in program.splitlines() if line.strip()]) <= 37
    known: dict[str, Any] = {"__name__": "walk"}
    exec(program.partition("\ntask = ")[0], known)
    check_env(known["Walk"](10))
