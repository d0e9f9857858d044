"""The measurements. No test judges a speed, because machines differ and are shared."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import beside
import jax
import losses
import numpy as np
import plots
import pytest
import report
import strength
from measure import Measurement, Ratio, in_turn_apart, measure, measure_apart
from peers import PEERS
from subjects import random_actions

from hackmatrix.rules import plain
from hackmatrix.rules.programs import Program


def check(found: Measurement) -> None:
    assert found.rate > 0
    assert len(found.seconds) >= 1
    assert found.steps % found.num_envs == 0


ON = pytest.mark.parametrize("devices", [1, None], ids=["one", "all"])
BRIEF = pytest.mark.brief


@ON
@pytest.mark.parametrize(
    "num_envs",
    [16, 64, pytest.param(256, marks=BRIEF), 1024, pytest.param(2048, marks=BRIEF), 8192, 32768],
)
def test_environment(measured, num_envs, devices):
    check(measured("environment", num_envs, devices))


@ON
@pytest.mark.parametrize("num_envs", [256, 2048])
def test_environment_with_flat_observations(measured, num_envs, devices):
    check(measured("environment, flat observations", num_envs, devices))


def _installed(peer: str) -> None:
    library = peer.split()[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; pip install 'ppo-mask[{library}]'")


@ON
@pytest.mark.parametrize("name", PEERS)
def test_peer(measured, name, devices):
    _installed(name)
    check(measured(name, 2048, devices))


@ON
@pytest.mark.parametrize(
    "num_envs", [pytest.param(256, marks=BRIEF), pytest.param(1024, marks=BRIEF), 2048, 8192]
)
@pytest.mark.parametrize("subject", ["matrix products", "training"])
def test_training_and_its_limit(measured, subject, num_envs, devices):
    check(measured(subject, num_envs, devices))


@ON
@pytest.mark.parametrize("num_envs", [256, 2048, 8192])
def test_rollout(measured, num_envs, devices):
    check(measured("rollout", num_envs, devices))


@ON
@pytest.mark.parametrize(
    ("subject", "other", "num_envs"),
    [
        ("training", "matrix products", 256),
        ("training", "matrix products", 2048),
        ("environment", "jumanji PacMan", 2048),
        ("environment, flat observations", "jumanji PacMan", 2048),
        ("environment", "pgx 2048", 2048),
    ],
)
def test_in_turn(compared, subject, other, num_envs, devices):
    if other in PEERS:
        _installed(other)
    found = compared(subject, other, num_envs, devices)
    assert found.ratio > 0


# Most tests that start or compile a whole training run nightly.
@pytest.mark.parametrize(
    "subject", [pytest.param("training", marks=pytest.mark.nightly), "pgx 2048"]
)
def test_a_subject_is_measured(subject):
    if subject in PEERS:
        _installed(subject)
    check(measure(subject, num_envs=4, runs=1, num_steps=4))


def test_all_devices_in_a_process_of_their_own():
    check(measure_apart(subject="matrix products", num_envs=16, runs=1, num_steps=4, devices=None))


def test_in_turn_in_a_process_of_its_own():
    names = {"subject": "matrix products", "other": "matrix products"}
    found = in_turn_apart(**names, num_envs=16, runs=3, num_steps=4)
    assert len(found.ratios) == 3
    assert 0.01 < found.ratio < 100


@pytest.mark.nightly
def test_a_second_start_finds_what_the_first_one_made(started):
    first, second = started
    assert first
    assert second == first


@pytest.mark.slow  # Seconds, for the imports.
def test_nothing_but_the_package_and_pytest_is_needed_to_measure():
    extras = ("gymnasium", "gymnax", "jumanji", "pgx", "PIL", "matplotlib", "optuna", "wandb")
    arguments = [str(Path(__file__).parent), "--benchmark", "--collect-only", "-q"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras})); "
        f"import pytest; sys.exit(pytest.main({arguments}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "test_training_and_its_limit[training-256-one]" in done.stdout


def test_random_actions_are_valid_and_uniform():
    mask = np.zeros((3, 28), bool)
    mask[0, [0, 13, 27]] = mask[1, 5] = mask[2] = True
    of_all = jax.jit(jax.vmap(random_actions, (0, None)))
    actions = of_all(jax.random.split(jax.random.key(0), 30_000), mask)
    counts = np.array([np.bincount(column, minlength=28) for column in np.asarray(actions).T])
    expected = 30_000 * mask / mask.sum(1, keepdims=True)
    # Counts agree within six standard deviations; invalid actions never occur.
    assert (np.abs(counts - expected) <= 6 * np.sqrt(expected)).all()


def test_report_keeps_and_compares(tmp_path, capsys):
    one = Measurement("environment", 4, 400, [2.0, 1.0, 4.0], 0.5, 1.5, 100.0, "cpu", 1)
    assert one.rates == [100, 200, 400]
    assert one.rate == 200
    other = Measurement("pgx 2048", 4, 400, [4.0], 0.5, 1.5, 100.0, "cpu", 1)
    path = tmp_path / "found.json"
    ratio = Ratio("environment", "pgx 2048", 4, [3.0, 1.0, 4.0], "cpu", 1)
    report.write(path, [one, other], [ratio], {"second": [4.0]})
    assert report.read(path) == [one, other]
    twice = Measurement("environment", 4, 400, [1.0], 0.5, 1.5, 100.0, "cpu", 1)
    limit = Measurement("matrix products", 4, 400, [1.0], 0.5, 1.5, 100.0, "cpu", 1)
    trained = Measurement("training", 4, 100, [1.0], 0.5, 1.5, 100.0, "cpu", 1)
    report.show(
        report.Console(width=120),
        [twice, other, limit, trained],
        [ratio],
        report.read(path),
        {"second": [3.0, 4.0, 5.5]},
    )
    printed = capsys.readouterr().out
    assert "2.00" in printed
    assert "25%" in printed
    said = "environment at 4 on 1 x cpu: 3.00 times pgx 2048 in turn (1.00 to 4.00)"
    assert said in printed
    assert "a second start: 4.0 s to its first update (3.0 to 5.5)" in printed


def test_report_draws(tmp_path):
    pytest.importorskip("matplotlib")
    found = [
        Measurement(subject, n, n, [1.0, 2.0], 0.5, 1.5, 100.0, "cpu", 1)
        for subject, n in [("environment", 16), ("environment", 64), ("pgx 2048", 16)]
    ]
    path = tmp_path / "rates.svg"
    plots.plot(path, found)
    picture = path.read_text()
    for name in ("environment", "pgx 2048", "1 x cpu", "the same, 16 environments"):
        assert f"<!-- {name} -->" in picture
    assert picture.count('id="LineCollection_') == 3


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"format": 0}')
    with pytest.raises(ValueError, match=r"other.json holds no benchmark results: its format is 0"):
        report.read(path)


@pytest.mark.nightly  # Compiles the learner and an evaluation of the game.
def test_strength_of_a_recipe_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(strength, "_FIRST_LOOK", 0.0)
    found = tmp_path / "found.json"
    own = ["--seconds=0.1", "--seeds=2", "--episodes=4", f"--json={found}"]
    strength.main([*own, "--num-envs=4", "--num-steps=4", "--hidden-dim=8"])
    runs = json.loads(found.read_text())["runs"]
    assert [looks[0]["steps"] for looks in runs] == [0, 0]
    assert all(looks[-1]["seconds"] >= 0.1 and looks[-1]["steps"] > 0 for looks in runs)
    assert re.search(r"At the end, \d+ s", capsys.readouterr().out)


def test_a_stage_is_reached_at_the_first_look_that_has_it():
    looks = [{"seconds": n, "steps": 10 * n, "stage": n / 2} for n in range(9)]
    assert strength.reached(looks, 2.5) == {"seconds": 5, "steps": 50}
    assert strength.reached(looks, 5.0) is None


def test_the_facts_of_a_loss():
    numbers = ("turn", "show", "calm", "step", "atk_uses", "pending")
    before = dict.fromkeys(numbers, 0) | {"stage": 2, "interval": 11, "next_task": 11}
    before |= {"exit": [5, 5], "player": [0, 0, 1, 4, 3, 1, 0, 1], "owned": [Program.STEP]}
    before |= {"cells": [], "enemies": [[1, 0, 1, 3, 0, 0, 0, 0]], "transmissions": []}
    after = plain.load(before)
    assert plain.step(after, losses.ACTION_NAMES.index("siphon"), plain.Dice(0)).died
    found = losses.loss_of(7, 4, [0, 3, 2], before, plain.dump(after))
    # Walking away, stunning the daemon, and STEP save the player; siphoning did not.
    assert (found.safe, found.beside) == (["up", "right", "STEP"], ["daemon"])
    assert (found.stage, found.turns, found.entry_hp, found.hp) == (2, 1, 2, 1)
    assert (found.action, found.unspent, found.cause) == ("siphon", [4, 3, 1], "walked into")
    assert replace(found, siphoned=1).cause == "siphoned too much"
    assert replace(found, safe=[]).cause == "few hp"


@pytest.mark.nightly  # Compiles an evaluation of the game.
def test_losses_are_counted_by_stage_and_cause(tmp_path, capsys):
    found = tmp_path / "found.json"
    losses.main(["--policy=random", "--episodes=8", f"--json={found}"])
    lost = json.loads(found.read_text())
    said, _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert said == f"random lost {len(lost)} of 8 games"
    assert rows[0].split("|")[2].strip() == "8"  # All begin stage 1.
    pairs = [(loss["stage"], loss["cause"]) for loss in lost]
    for stage, row in enumerate(rows[:-1], start=1):
        counts = [pairs.count((stage, cause)) for cause in losses.CAUSES]
        assert [int(n) for n in row.split("|")[5:-1]] == counts
    assert {loss["cause"] for loss in lost} <= set(losses.CAUSES)
    assert all(loss["hp"] >= 1 and loss["beside"] and loss["entry_hp"] >= 2 for loss in lost)


def test_workers_can_import_the_games_beside_maskable_ppo():
    pytest.importorskip("gymnasium")
    import maskable_ppo
    from ppo_mask.adapters.from_gymnasium import GymnasiumEnv

    game = maskable_ppo.games()["card game"]
    with GymnasiumEnv(game, num_workers=1) as env:
        _, timestep = env.reset(jax.random.key(0))
    assert timestep.action_mask.any()


@pytest.mark.nightly  # Compiles a training and an evaluation.
def test_a_training_is_measured_for_the_table_beside_rejax():
    _installed("gymnax")
    found = beside.measure("ppo_mask", beside.Task("CartPole-v1", 4, 64, num_steps=8), seed=0)
    rows = [{**found, "library": library, "task": 0} for library in beside.LIBRARIES]
    rows[1]["steps_per_second"] /= 2
    line = beside.table(rows).splitlines()[-1]
    assert line.startswith("| CartPole-v1 | 16 | ")
    assert "| 2.00 |" in line
