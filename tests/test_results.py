"""The page of results on other libraries' tasks."""

import functools
from pathlib import Path
from types import ModuleType

import pytest

from source import ROOT, load


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return load("benchmarks/results.py")


def test_the_pages_are_what_the_script_makes_of_the_kept_results(results: ModuleType) -> None:
    kept, pictures = results.kept(), [*(results.IMAGES / "gallery").iterdir()]
    for page in results.PAGES:
        assert results.fill(page.read_text(), kept) == page.read_text()
    names = {row.name for row, _ in kept}
    assert names == {path.stem for path in results.KEPT.glob("*.json")}
    assert names >= {path.stem for path in pictures}
    assert sum(path.stat().st_size for path in pictures) < 300_000
    assert all(found["command"] == results.command(row) for row, found in kept)


def test_a_row_says_when_it_falls_short(results: ModuleType) -> None:
    row = results.ROWS[0]._replace(reference=10.0, spread=0.5)
    # Three returns with a standard deviation of 1 have an interval of 2.48 to each side.
    verdicts = [results.verdict(row, {"returns": [x - 1, x, x + 1]}) for x in (7, 7.1, 13)]
    assert verdicts == ["**falls short**", "within the spread", "better"]


def test_the_reference_of_tic_tac_toe_is_perfect_play(results: ModuleType) -> None:
    """Against random play, over all positions: the mean of beginning and of being second."""
    rows = [f"{a}{b}{c}" for a, b, c in ((0, 1, 2), (3, 4, 5), (6, 7, 8))]
    lines = [*rows, *map("".join, zip(*rows, strict=True)), "048", "246"]

    @functools.cache
    def value(own: frozenset[str], other: frozenset[str], is_mine: bool) -> float:
        for cells, result in ((own, 1.0), (other, -1.0)):
            if any(cells >= set(line) for line in lines):
                return result
        free = {*"012345678"} - own - other
        if is_mine:
            return max((value(own | {cell}, other, False) for cell in free), default=0.0)
        return sum(value(own, other | {cell}, True) for cell in free) / max(len(free), 1)

    nothing = frozenset[str]()
    (row,) = [row for row in results.ROWS if row.name == "tictactoe"]
    begin, follow = (value(nothing, nothing, is_mine) for is_mine in (True, False))
    assert row.reference == round((begin + follow) / 2, 2)


def test_a_row_says_what_its_seeds_reached(results: ModuleType) -> None:
    # Of 1, 2, 3, 4 and 10: mean 4, standard deviation 3.54, t 2.776; the middle three have mean 3.
    assert results.reached({"returns": [10, 2, 1, 4, 3]}) == ["4.00", "-0.39 to 8.39", "3.00"]


def test_a_task_by_its_name_alone_has_no_settings(results: ModuleType) -> None:
    short = {row.name: results.by_name_alone(row) for row in results.ROWS}
    flags = "train_elsewhere.py --library gymnax --name CartPole-v1"
    assert getattr(short["cartpole"], "flags", None) == flags
    assert short["taxi"] is short["connect_four"] is short["hackmatrix"] is None
    assert results.by_default().keys() <= {name for name, row in short.items() if row}


def test_a_change_is_marked_if_it_makes_a_sure_difference(results: ModuleType) -> None:
    del results  # It has put the folder of ``changes`` on the path.
    changes = load("benchmarks/changes.py")
    others = [9.0, 10.0, 11.0]
    cells = [changes.compare([x - 1, x, x + 1], others) for x in (13, 11.9, 7, 2000)]
    assert cells == ["**13.0**", "11.9", "7.0 ↓", "**2,000**"]
    assert changes.compare(None, others) == ""


def test_the_changes_are_run_on_all_tasks_or_on_those_named(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    del results
    changes, ran = load("benchmarks/changes.py"), list[str]()
    monkeypatch.setattr(changes, "run", ran.append)
    changes.main(["2048"])
    changes.main(["all"])
    assert ran == ["2048", *changes.TASKS]


def train(results: ModuleType, name: str, folder: Path, more: str = "") -> float:
    """Trains a row's first seed, with more flags, and returns what it reaches."""
    (row,) = [row for row in results.ROWS if row.name == name]
    row = row._replace(flags=row.flags + more, picture="unchanged", seeds=1)
    (found,) = results.run(row, folder)["returns"]
    return found


@pytest.mark.optimized
def test_a_row_trains_and_reaches_what_the_page_says(results: ModuleType, tmp_path: Path) -> None:
    found = train(results, "taxi", tmp_path, " --total-timesteps 120_000")
    assert found > 0  # The page says more than 6, and random play gets less than -100.


@pytest.mark.nightly
@pytest.mark.optimized
@pytest.mark.parametrize(
    ("name", "least"), [("acrobot", -80.0), ("mountain_car", -118.0), ("freeway", 58.0)]
)
def test_rows_reach_what_the_page_says(
    name: str, least: float, results: ModuleType, tmp_path: Path
) -> None:
    pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")
    # What others report; the page says -72, -99 and 63.
    assert train(results, name, tmp_path) > least
