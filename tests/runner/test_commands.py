"""The commands of a program that knows its task, and of ``ppo-mask`` for runs of any."""

import dataclasses
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from PIL import Image

import corridor
import ppo_mask as pm
from counting import DEFAULTS, TASK
from hackmatrix import cli
from ppo_mask.checkpoints import RunDir
from ppo_mask.envs import drawing
from ppo_mask.errors import RunError
from ppo_mask.games import Seat
from ppo_mask.runner import commands, load_run, main
from ppo_mask.runner.commands._options import to_json
from ppo_mask.runner.commands._plot import draw, read_log, read_logs, together
from reveal import Reveal


def call(*words: object) -> int:
    return main(TASK, DEFAULTS, [str(word) for word in words], prog="corridor")


class ToTheRight(pm.AbstractActorCritic):
    """Always goes right."""

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        logits = jnp.array([-1e9, -1e9, 0.0])
        return pm.MaskedCategorical(logits, action_mask), jnp.float32(jnp.nan)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and with one that differs in its learning rate and its length."""
    folder = tmp_path_factory.mktemp("checkpoints")
    where = (f"--checkpoint-dir={folder}", "--no-tensorboard", "--log-interval=1")
    assert call("train", *where, "--run-name=a-seed0", "--total-timesteps=2000") == 0
    assert call(*where, "--run-name=a-seed1", "--total-timesteps=2000", "--seed=1") == 0
    assert call(*where, "--run-name=b", "--length=5", "--lr=1e-4") == 0
    return folder


def test_a_run_is_evaluated(runs, capsys):
    words = ("--episodes=20", "--sample", "--max-steps=1")
    assert call("evaluate", "a-seed0", f"--checkpoint-dir={runs}", *words, "--json") == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["name"], printed["update"]) == ("a-seed0/63", 63)
    assert printed["run"] == str(runs / "a-seed0")
    assert printed["cut_off"] > 5
    assert printed["estimates"]["length"] == {"mean": 1, "low": 1, "high": 1}


def test_policies_are_evaluated_side_by_side(runs, tmp_path, capsys):
    task = dataclasses.replace(
        corridor.TASK,
        policies={"right": ToTheRight()},
        play_env=lambda settings, model: corridor.Corridor(settings.length + 1),
        evaluate_metrics={
            "stats/left": pm.Metric(lambda action, info: action == 0),
            "stats/cut": pm.Metric(
                lambda action, info: info["episode_length"],
                over="episodes",
                where=lambda info: ~info["arrived"],
            ),
        },
    )
    words = ["evaluate", "--episodes=20", "--max-steps=40", "--policy", "random", "right", "right"]
    assert main(task, corridor.DEFAULTS, words) == 0
    shown, said = capsys.readouterr()
    assert "20 episodes by right" in said
    rows = {line.split("  ")[0]: line.split("  ")[1:] for line in shown.splitlines() if line}
    cells = {name: [cell.strip() for cell in row if cell] for name, row in rows.items()}
    assert cells[""] == ["random", "right", "right"]
    _, one, other = cells["stats/arrived"]
    assert one == other == "100.0% [83.9, 100.0]"
    assert re.fullmatch(r"-?[.\d]+ \[-?[.\d]+, -?[.\d]+\]", cells["return"][0])
    assert float(cells["stats/left"][0]) > 0.2
    assert cells["stats/left"][1] == "0"
    assert cells["stats/furthest"][1:] == ["6", "6"]
    assert cells["cut off"][1:] == ["0", "0"]
    # Random play may have been cut off; who always goes right arrives.
    assert cells["stats/cut"][1:] == ["-", "-"]

    assert main(task, corridor.DEFAULTS, ["watch", "--policy", "random", "--max-steps=1"]) == 0
    assert "value" not in capsys.readouterr().out
    for words, problem in (
        (["evaluate", "--policy", "rihgt"], "--policy: invalid choice: 'rihgt'"),
        (["watch", str(runs), "--policy", "right"], f"{runs} and right: give one policy; evaluate"),
        (["watch", f"--checkpoint-dir={tmp_path}"], "; there are also --policy random|right"),
        (["--initial-policy=right"], "the policy right has no weights"),
        (["--run-name=random"], "--run-name cannot be random"),
    ):
        assert main(task, corridor.DEFAULTS, words) == 2
        assert problem in capsys.readouterr().err


def test_a_saved_policy_is_evaluated_and_watched(runs, tmp_path, capsys):
    pm.save_policy(load_run(TASK, DEFAULTS, str(runs / "a-seed0")).policy, tmp_path / "policy")
    assert call("evaluate", tmp_path / "policy", "--episodes=2", "--max-steps=1", "--json") == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["update"], printed["eval/num_episodes"]) == (None, 2)
    assert call("watch", tmp_path / "policy", "--max-steps=1") == 0


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_a_policy_that_is_not_finite_is_one_line(runs, tmp_path, capsys, command):
    policy = load_run(TASK, DEFAULTS, str(runs / "a-seed0")).policy
    spoiled = jax.tree.map(lambda x: x / 0 if eqx.is_inexact_array(x) else x, policy)
    pm.save_policy(spoiled, tmp_path / "policy")
    assert call(command, tmp_path / "policy", "--max-steps=2") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "error: not finite: 1 parameters (the first: network.logits)"


def test_json_has_no_nan():
    printed = to_json({"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(printed, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5]}


def test_a_run_is_watched(runs, capsys):
    assert call("watch", runs / "a-seed0", "--seed=3", "--max-steps=3") == 0
    text = capsys.readouterr().out
    assert text.startswith("state = ")
    assert re.search(r"policy: .*▸.*\([23] of 3 allowed, value ", text)
    assert re.search(r"step 1: action [012], reward ", text)
    assert text.rstrip().splitlines()[-1].startswith("return ")


def test_a_run_searches(runs, capsys):
    words = (f"--checkpoint-dir={runs}", "--max-steps=1", "--search=2", "--worlds=2")
    assert call("evaluate", "a-seed0", *words, "--episodes=2", "--json") == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["name"] == "a-seed0/63, search 2 × 2, sees all"
    assert call("watch", "a-seed0", *words) == 0
    assert "policy: " in capsys.readouterr().out
    for more, problem in (
        (["evaluate", "--policy", "random"], "the policy random knows no values"),
        (["watch", "a-seed0", "--play"], "--search is without --play and --tournament"),
    ):
        assert call(*more, *words) == 2
        assert problem in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_has_the_rewards_that_a_run_ended_with(tmp_path):
    phases = tmp_path / "phases.yaml"
    phases.write_text("[{until: 0.5, gamma: 0.5}, {gamma: [0.6, 0.7]}]")
    flags = ["--normalize-rewards", f"--phases={phases}", "--total-timesteps=1", "--run-name=run"]
    where = f"--checkpoint-dir={tmp_path}"
    assert main(corridor.TASK, corridor.DEFAULTS, [*flags, where]) == 0
    found = []
    task = dataclasses.replace(
        corridor.TASK, search=lambda run, last: found.append(last.algorithm.gamma) or {}
    )
    parser = commands.CommandParser()
    commands.add_players(parser, task, several=False, max_steps=1)
    options = parser.parse_args(["run", where, "--search=4"])
    (run,) = commands.load_players(options, task, corridor.DEFAULTS)
    arrays = run.run_dir.checkpoint().arrays()
    variance = arrays["own.reward_scaler.moments.variance"]
    assert found == [0.7]
    assert run.search.gamma == pytest.approx(0.7)
    assert run.search.reward_scale == pytest.approx(variance**0.5)
    assert variance != 1


@pytest.mark.slow
def test_several_choices_at_once_are_watched(tmp_path, capsys):
    doors = pm.envs.probes.MaskedDoors(length=2)
    task = dataclasses.replace(
        corridor.TASK, make_env=lambda _: doors, metrics={}, console_columns={}
    )
    model = pm.network_for(doors, "mlp", hidden_dim=8, key=jax.random.key(0))
    pm.save_policy(model, tmp_path / "doors")
    assert main(task, corridor.DEFAULTS, ["watch", str(tmp_path / "doors"), "--sample"]) == 0
    assert re.search(r"step 1: action 0:\d 1:\d 2:\d, reward", capsys.readouterr().out)


def test_a_person_plays_against_a_policy(tmp_path, capsys, monkeypatch):
    def says_two(observation, mask, key):
        return jnp.int32(2)

    task = dataclasses.replace(
        corridor.TASK,
        make_env=lambda _: Seat(Reveal(), says_two, begins=True),
        metrics={},
        console_columns={},
    )
    words = ["watch", "--policy", "random", "--play"]
    typed = iter(["", "4", "one", "3"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    said = []
    for seed in range(6):
        assert main(task, corridor.DEFAULTS, [*words, f"--seed={seed}"]) == 0
        text = capsys.readouterr().out
        assert text.count("allowed: 0, 1, 2, 3") == 1
        assert "step 1: action 3, reward " in text
        said.append(re.findall(r"game\[1\] = \[(.+)\]", text)[-1])
        typed = iter(["3"])
    assert len({*said}) > 1  # It is the policy that answers, not the environment's opponent.

    monkeypatch.undo()
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError))
    assert main(task, corridor.DEFAULTS, words) == 2
    assert "the game has been left" in capsys.readouterr().err
    assert main(task, corridor.DEFAULTS, [*words, f"--html={tmp_path}/x.html"]) == 2
    assert "--play is for the terminal" in capsys.readouterr().err


PICTURES = {
    "text": lambda state, _: f"[{int(state)}]",
    "svg": lambda state, _: drawing.Svg(f"<svg>{int(state)}</svg>"),
    "pixels": lambda state, _: np.full((4, 6, 3), 40 * int(state), np.uint8),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_an_environment_draws_its_states(kind, runs, capsys, tmp_path, monkeypatch):
    draw = staticmethod(PICTURES[kind])
    monkeypatch.setattr(corridor.Corridor, "draw", draw, raising=False)
    monkeypatch.chdir(tmp_path)
    words = ("watch", runs / "a-seed0", "--max-steps=1")
    assert call(*words) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("[" if kind == "text" else "state = ")
    assert ("draws no text" in shown.err) == (kind != "text")
    assert call(*words, "--html=a.html") == 0
    wanted = {"text": "<pre>[", "svg": "data:image/svg+xml;", "pixels": "data:image/png;"}[kind]
    assert wanted.replace("<", "\\u003c") in Path("a.html").read_text()
    assert call(*words, "--html=b.html", "--gif=a.gif") == (0 if kind == "pixels" else 2)
    if kind == "pixels":
        assert Image.open("a.gif").size == (420, 280)
    else:
        assert "a GIF needs pictures of pixels" in capsys.readouterr().err
        assert not Path("b.html").exists()


def test_a_run_leaves_what_the_console_showed(tmp_path, capsys):
    words = (f"--checkpoint-dir={tmp_path}", "--run-name=a", "--log-interval=2")
    assert call(*words, "--total-timesteps=160") == 0
    printed = capsys.readouterr().out.split("compiling ...\n")[1]
    assert call("--resume", tmp_path / "a", "--total-timesteps=320") == 0
    more = capsys.readouterr().out.split("compiling ...\n")[1]
    assert (tmp_path / "a" / "log.txt").read_text() == printed + more


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train/kl", "train/lk"], "a, b did not log train/lk"),
        (["train/kl", "eval/x"], "b did not log eval/x"),
    ],
)
def test_what_is_missing_in_a_plot_is_named(names, said, capsys):
    pytest.importorskip("matplotlib")
    curve = [1], np.array([[2.0]])
    draw({"a": {"train/kl": curve, "eval/x": curve}, "b": {"train/kl": curve}}, "svg", names)
    assert capsys.readouterr().err == f"warning: {said}\n"


def test_seeds_are_drawn_as_a_mean_and_a_band(runs, tmp_path):
    pytest.importorskip("matplotlib")
    paths = [runs / name for name in ("a-seed0", "a-seed1", "b")]
    assert call("plot", *paths, "--mean", "--out", tmp_path / "mean.svg") == 0
    picture = (tmp_path / "mean.svg").read_text()
    assert picture.startswith("<?xml")
    assert all(f"<!-- {name} -->" in picture for name in ("a (2 seeds)", "b"))
    assert "a-seed0" not in picture
    assert 'PolyCollection_1"' in picture  # The band.


def test_runs_of_one_name_are_labeled_by_their_paths(runs, tmp_path):
    other = shutil.copytree(runs / "b", tmp_path / "b")
    folders = [RunDir(path) for path in (runs / "a-seed0", runs / "b", other)]
    assert list(read_logs(folders, mean=False)) == ["a-seed0", str(runs / "b"), str(other)]


def test_damaged_lines_of_a_log_are_left_out(tmp_path):
    damaged = b'\xff\n12\n{"x": 3}\n\0\0\n{"step": "a", "x": 1}\n{"step": 9, "x": null}\n{"st'
    (tmp_path / "log").write_bytes(b'{"step": 1, "x": 2}\n' + damaged)
    assert read_log(tmp_path / "log") == {"x": ([1], [[2.0]])}


def test_seeds_are_compared_at_the_first_ones_steps_as_far_as_all_go():
    one = {"x": ([10, 20, 30], np.array([[1.0, 2.0, 3.0]])), "alone": ([10], np.zeros((1, 1)))}
    other = {"x": ([5, 25], np.array([[0.0, 4.0]]))}
    ((name, (steps, values)),) = together([one, other]).items()
    assert (name, steps, values.tolist()) == ("x", [10, 20], [[1.0, 2.0], [1.0, 3.0]])


def test_a_run_is_loaded_with_its_environment_and_settings(runs):
    run = load_run(TASK, DEFAULTS, str(runs / "b"))
    assert run.env.length == 5
    assert run.config.algorithm.learning_rate == 1e-4
    assert repr(run) == "TrainedRun(b/6, Policy(Bias, 3 parameters))"
    result = pm.evaluate(run.policy, run.env, jax.random.key(0), 4, max_steps=5)
    assert repr(result).startswith("EvaluationResult(4 episodes: return ")
    timestep = run.env.reset(jax.random.key(1))[1]
    sample = run.policy.sample(timestep.observation, timestep.action_mask, jax.random.key(2))
    assert bool(timestep.action_mask[sample])


def test_a_run_of_another_program_is_refused_in_one_line(runs, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(runs / "b", other)
    config = yaml.safe_load((other / "config.yaml").read_text())
    config["environment"] = {"walls": 3}
    (other / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(RunError, match=r"not of this program: .*unknown setting walls"):
        load_run(TASK, DEFAULTS, str(other))
    for command in ("evaluate", "watch"):
        assert call(command, other) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "not of this program" in line


def test_help_names_the_commands(capsys):
    for words in (["--help"], ["train", "--help"]):
        with pytest.raises(SystemExit):
            call(*words)
        assert "Other commands: evaluate, watch, export, plot" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["evaluate"], ["watch"], ["plot"], ["inspect"]])
def test_the_game_has_help_for_its_commands(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("95% intervals" in shown) == (words in ([], ["evaluate"]))


def test_every_program_prints_the_version(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ppo-mask", "--version"])
    programs = {
        "a task's": lambda: call("--version"),
        "ppo-mask": commands.of_any_run,
        "python -m ppo_mask": lambda: runpy.run_module("ppo_mask", run_name="__main__"),
        "hackmatrix": lambda: cli.main(["--version"]),
    }
    for program in programs.values():
        with pytest.raises(SystemExit) as end:
            program()
        assert (end.value.code, capsys.readouterr().out) == (0, f"ppo-mask {pm.__version__}\n")


def test_the_game_has_its_own_commands(capsys):
    assert cli.main(["train", "watch"]) == 2
    assert "unknown argument watch" in capsys.readouterr().err


def test_the_game_refuses_a_run_of_another_program(runs, capsys):
    for command in ("evaluate", "watch"):
        assert cli.main([command, str(runs / "b")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is not of this program: " in line
