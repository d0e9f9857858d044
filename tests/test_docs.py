"""Every block of code in README and docs runs: programs, and commands in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Its blocks are drawings: of the flow, and of types without their bodies.
DRAWINGS = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
SET_UP = re.compile(r"python3 -m venv \.venv && \.venv/bin/pip install -e \S+ && \.venv/bin/")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    # `python` is this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell_lines(text: str) -> list[str]:
    """The commands but for those that set up the project; these have tests of their own."""
    return [line for line in text.splitlines() if not SET_UP.match(line)]


# The README's program trains twice, in processes of its own; others compile the game anew.
SLOW = {name: [pytest.mark.slow] for name in ("README.md", "curriculum.md", "gymnasium.md")}
RUN = [pytest.param(p, id=p.name, marks=SLOW.get(p.name, [])) for p in PAGES if p != DRAWINGS]


@pytest.mark.parametrize("page", RUN)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, text in blocks(page):
        file = re.match(r"# (\w+\.(?:py|yaml))", text)
        assert language in ("python", "sh") or file, f"a block of {language}: no test runs it"
        if language == "sh":
            for line in shell_lines(text):
                run(["bash", "-c", line], tmp_path)
        elif file:
            (tmp_path / file[1]).write_text(text)  # The commands after it use it.
        else:
            run([sys.executable, "-c", text], tmp_path)


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
def test_the_command_to_train_runs(tmp_path: Path) -> None:
    command = SET_UP.sub("", set_ups()[0]).replace("examples/", f"{ROOT}/examples/")
    short = "--total-timesteps 2048 --num-envs 16 --num-steps 8 --log-interval 2"
    assert "finished after 16 updates" in run(["bash", "-c", f"{command} {short}"], tmp_path)


def test_the_readme_example_is_short() -> None:
    (program,) = [text for _, text in blocks(ROOT / "README.md") if text.startswith("# walk.py")]
    assert len([line for line in program.splitlines() if line.strip()]) <= 37
