"""The examples that are no command of the README: they run, and those that train learn."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optuna
import pytest

import ppo_mask as pm
from ppo_mask.errors import RunError
from source import ROOT, load


@pytest.mark.optimized
def test_search_prunes_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: Callable[[], list[str]]
) -> None:
    search = load("examples/search_optuna.py")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{tmp_path}/search.db"
    small = ["--steps", "10240", "--num-envs", "16", "--storage", storage]
    search.main([*small, "--trials", "9"])
    assert compiled().count("jit(run_chunk)") == 1
    study = search.main([*small, "--trials", "1"])
    assert len(study.trials) == 10
    states = [trial.state.name for trial in study.trials]
    assert states[:4] == ["COMPLETE"] * 4
    assert "PRUNED" in states
    for trial in study.trials:
        reports = list(trial.intermediate_values)
        assert reports == sorted(reports)
        assert (len(reports) == 20) == (trial.state.name == "COMPLETE")
    complete = [t.value for t in study.trials if t.state.name == "COMPLETE"]
    assert study.best_value == max(complete) > min(complete)
    assert f"best return {study.best_value:.3f}" in capsys.readouterr().out


def test_search_in_which_every_trial_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = load("examples/search_optuna.py")

    def fail(*_: object) -> float:
        raise pm.TrainingError("update 1: the loss is not finite")

    monkeypatch.setattr(search, "objective", fail)
    search.main(["--trials", "2"])
    assert capsys.readouterr().out == "0 of 2 trials ran to their end\n"


@pytest.mark.optimized
def test_a_sweep_is_one_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: Callable[[], list[str]]
) -> None:
    file = tmp_path / "sweep.csv"
    rows = load("examples/sweep.py").main([f"--out={file}"])
    assert sum("train" in name for name in compiled()) == 1
    assert len(rows) == 6
    assert all(row["worst_seed"] <= row["return"] <= row["best_seed"] for row in rows)
    assert all(row["return"] > 7 and row["finite_seeds"] == 3 for row in rows)
    assert rows == sorted(rows, key=lambda row: row["return"], reverse=True)
    printed = capsys.readouterr().out
    assert printed.startswith("6 points of 3 seeds; programs to compile: 1\n")
    assert "learning_rate" in printed
    written = csv.DictReader(file.read_text().splitlines())
    assert [{name: float(x) for name, x in row.items()} for row in written] == rows


def test_a_sweep_groups_what_can_share_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, space = load("examples/sweep.py"), tmp_path / "space.yaml"
    groups: list[list[dict[str, Any]]] = []

    def train(env: str, points: list[dict[str, Any]], seeds: int, steps: int) -> list[Any]:
        groups.append(points)
        return [point | {"return": point["gamma"]} for point in points]

    monkeypatch.setattr(sweep, "train_group", train)
    space.write_text("num_steps: [32, 64]\ngamma: [0.9, 1]\nent_coef: [1e-3, 0, 0.1]\n")
    own = [f"--space={space}", f"--out={tmp_path}/sweep.csv", "--force"]
    assert len(sweep.main(own)) == 12
    assert [len(group) for group in groups] == [6, 6]
    assert groups[0][0] == {"num_steps": 32, "gamma": 0.9, "ent_coef": 0.001}
    drawn = sweep.main([*own, "--num-trials=5"])
    assert len({str(row) for row in drawn}) == 5
    assert len(sweep.main([*own, "--num-trials=50"])) == 12
    with pytest.raises(RunError, match="exists already"):
        sweep.main(own[:2])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- 1", "must have settings with lists"),
        ("learning_rat: [0.1]", "no setting learning_rat; did you mean learning_rate"),
        ("gamma: 0.9", "gamma must have a list of values, got 0.9"),
        ("gamma: [0.9, 1.5]", "gamma must be .*1.5"),
        ("gamma: [high]", "gamma must be a finite number, got 'high'"),
        ("num_envs: [0]", "num_envs must be at least 1"),
    ],
)
def test_a_search_space_that_cannot_be_is_one_line(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(RunError, match=problem):
        load("examples/search_space.py").read_space(file)


def test_a_search_may_choose_from_the_values_of_a_sweep() -> None:
    search = load("examples/search_optuna.py")
    file = ROOT / "examples" / "search_space.yaml"
    chosen = search.suggest(
        optuna.trial.FixedTrial({"learning_rate": 0.003, "ent_coef": 0.0}), file
    )
    assert chosen == {"learning_rate": 0.003, "ent_coef": 0.0}


def test_minimal_example_has_ten_lines_of_code() -> None:
    _, _, code = (ROOT / "examples" / "minimal.py").read_text().split('"""')
    lines = [line for line in code.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 10


@pytest.mark.slow
def test_minimal_example_learns_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    minimal = load("examples/minimal.py")
    assert minimal.result.mean_return >= 7.5  # Without the mask, 1/15 at best; at random, 4.
    assert minimal.history["train/mean_episode_return"][0] < 7.5
    loaded, trained = pm.load_policy("policy").model, minimal.state.model
    jax.tree.map(np.testing.assert_array_equal, loaded, trained)
    assert f"then {minimal.result.mean_return:.1f}" in capsys.readouterr().out


@pytest.mark.slow
def test_example_from_scratch_learns() -> None:
    assert load("examples/from_scratch.py").main(updates=15) >= 7.5


@pytest.mark.slow
def test_example_from_scratch_matches_the_library() -> None:
    scratch = load("examples/from_scratch.py")
    model = pm.network_for(scratch.env, "mlp", hidden_dim=32, key=jax.random.key(0))
    state = pm.Trainer(scratch.env, scratch.config).init(model, jax.random.key(1))
    opt_state = scratch.optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    ours = scratch.update(model, opt_state, state.rollout, state.key)[0]
    trainer = pm.Trainer(scratch.env, scratch.config)
    theirs = eqx.filter_jit(trainer.update)(state, jnp.int32(1))[0].model
    for one, other, start in zip(*map(jax.tree.leaves, (ours, theirs, model)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
        assert np.abs(other - start).max() > 1e-3


def othello_by_hand(board: np.ndarray, side: int) -> dict[int, list[tuple[int, int]]]:
    """The stones that each move turns."""
    moves: dict[int, list[tuple[int, int]]] = {}
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    for row, column in zip(*np.nonzero(board == 0), strict=True):
        stones: list[tuple[int, int]] = []
        for down, right in steps:
            line: list[tuple[int, int]] = []
            place = (row + down, column + right)
            while max(place) < 6 and min(place) >= 0 and board[place] == -side:
                line.append(place)
                place = (place[0] + down, place[1] + right)
            if max(place) < 6 and min(place) >= 0 and board[place] == side:
                stones += line
        if stones:
            moves[6 * int(row) + int(column)] = stones
    return moves


def test_othello_is_that_of_the_rules() -> None:
    game, key = load("examples/othello.py").Othello(), jax.random.key(0)
    deal, move, random = jax.jit(game.deal), jax.jit(game.move), np.random.default_rng(0)
    passes = 0
    for _ in range(20):
        state, turn = deal(key)
        side, board = 1, np.asarray(state.board).reshape(6, 6).copy()
        while not turn.terminated:
            moves = othello_by_hand(board, side)
            assert np.flatnonzero(turn.action_mask).tolist() == (sorted(moves) or [36])
            action = int(random.choice(sorted(moves) or [36]))
            passes += action == 36
            if action < 36:
                board[action // 6, action % 6] = side
                for place in moves[action]:
                    board[place] = side
            state, turn = move(key, state, jnp.int32(action))
            side = -side
            np.testing.assert_array_equal(np.asarray(state.board).reshape(6, 6), board)
        assert not othello_by_hand(board, 1) | othello_by_hand(board, -1)
        assert turn.rewards.tolist() == [np.sign(board.sum()), -np.sign(board.sum())]
    assert passes > 0


def test_the_solver_of_connect_four_is_right() -> None:
    solver = load("benchmarks/connect_four.py")

    def best(own: int, other: int) -> int:
        """All of the tree, without any order or pruning."""
        cells = [cell for x in range(7) if (cell := solver.landing(own | other, x))]
        values = [1 if solver.has_four(own | cell) else -best(other, own | cell) for cell in cells]
        return max(values, default=0)

    random, values = np.random.default_rng(0), set[int]()
    while len(values) < 3:
        own, other = 0, 0
        for _ in range(35):
            cells = [cell for x in range(7) if (cell := solver.landing(own | other, x))]
            stone = int(random.choice(np.array(cells, dtype=object)))
            if solver.has_four(own | stone):
                break
            own, other = other, own | stone
        else:
            values.add(value := best(own, other))
            assert solver.value(own, other, {}) == value
    # Four in a row, a column and both diagonals; not around a corner.
    rows = [[0, 7, 14, 21], [0, 1, 2, 3], [0, 8, 16, 24], [3, 9, 15, 21]]
    assert all(solver.has_four(sum(1 << x for x in row)) for row in rows)
    assert not solver.has_four(sum(1 << x for x in [4, 5, 7, 8]))


@pytest.mark.slow
def test_battles_are_the_same_with_parts_and_with_combinations_of_them() -> None:
    orders = load("examples/orders.py")
    battle = orders.Battle()
    flat = orders.Flat(battle)
    for env in (battle, flat):
        pm.check_env(env, num_steps=12)
    state, timestep = jax.jit(flat.reset)(jax.random.key(0))
    # Nobody is wounded: each unit strikes, and only archers choose whom.
    assert int(timestep.action_mask.sum()) == 4 * 12 + 8
    state = eqx.tree_at(lambda s: s.ours, state, state.ours.at[:2].set(jnp.array([0, 1])))
    _, timestep = jax.jit(flat._flat)(state, timestep)
    # Eleven are left, of whom four healers can heal the wounded one.
    assert int(timestep.action_mask.sum()) == 4 * 12 + 7 + 4
