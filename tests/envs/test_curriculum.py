"""Curricula: their files, their effect on learning, and resumed runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from marathon import DEFAULTS, TASK, Marathon, Starts
from ppo_mask.checkpoints import RunFolder, read_arrays
from ppo_mask.envs import TimeLimit, VectorEnv, check_env
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import Phases, _schema as schema, main, make_plan
from ppo_mask.training import Trainer, init_seeds, select_seed, train_seeds

PHASES = """
- until: 0.5
  weights: {near: 1}
- until: 0.75
  weights: {near: 1, far: 3}
- weights: {far: 1}
"""
MARATHON = Path(__file__).parents[1] / "support" / "marathon.py"
STEPS_PER_UPDATE = 32


def phases(text: str = PHASES) -> Phases:
    return Phases.from_plain(yaml.safe_load(text), "--curriculum")


def test_weights_are_those_of_the_phase_that_a_progress_lies_in():
    schedule = phases().schedule(("far", "middle", "near"))
    near, mixed, far = [0, 0, 1], [3, 0, 1], [1, 0, 0]
    wanted = {0: near, 0.49: near, 0.5: mixed, 0.74: mixed, 0.75: far, 0.99: far, 1.0: far}
    for progress, weights in wanted.items():
        np.testing.assert_array_equal(schedule(jnp.float32(progress)), weights)


@pytest.mark.parametrize("total", [3, 10, 49, 1000])
def test_a_phase_ends_with_the_update_that_it_should(total):
    """Progress is a rounded number: no border moves by an update for it."""
    tenths = "".join(f"- {{until: 0.{n}, weights: {{{n}: 1}}}}\n" for n in range(1, 10))
    schedule = phases(tenths + "- weights: {10: 1}").schedule([str(n) for n in range(1, 11)])
    updates = jnp.arange(total)
    got = jax.vmap(lambda update: jnp.argmax(schedule(update / total)))(updates)
    np.testing.assert_array_equal(got, np.arange(total) * 10 // total)


def test_a_single_phase_is_a_fixed_mixture():
    schedule = phases("[{weights: {b: 1e-3}}]").schedule(("a", "b"))
    np.testing.assert_allclose(schedule(jnp.float32(0.3)), [0, 1e-3])


BAD_FILES = [
    (None, "cannot read {file}: No such file or directory"),
    ("- [", "{file} is not valid YAML"),
    ("", "{file} must be a list of phases, got None"),
    ("[]", "{file} must be a list of phases, got []"),
    ("until: 1", "{file} must be a list of phases, got {{'until': 1}}"),
    ("- 0.5", "{file}, phase 1 must have 'until' and 'weights', got 0.5"),
    ("- until: 1", "{file}, phase 1 has no 'weights'"),
    ("- weights: {far: 1}\n- weights: {far: 1}", "{file}, phase 1 has no 'until'"),
    ("- weights: {far: 1}\n  untl: 1", "{file}, phase 1: unknown key untl; there are until and"),
    ("- weights: [1, 2]", "{file}, phase 1: weights must be 'start: weight' pairs, got [1, 2]"),
    ("- weights: {far: -1, near: 2}", "{file}, phase 1: the weight of far must be at least 0"),
    ("- weights: {far: 0, near: 0}", "{file}, phase 1: at least one weight must be more than 0"),
    ("- weights: {}", "{file}, phase 1: at least one weight must be more than 0"),
    ("- weights: {far: .nan}", "the weight of far must be a finite number, got nan"),
    ("- weights: {far: much}", "the weight of far must be a finite number, got 'much'"),
    ("- weights: {far: true}", "the weight of far must be a finite number, got True"),
    ("- {until: soon, weights: {far: 1}}", "phase 1: until must be a finite number, got 'soon'"),
    ("- {until: 0.8, weights: {far: 1}}", "phase 1 is the last one: until must be 1 or left out"),
    ("- {until: 1.5, weights: {far: 1}}", "until must be more than 0 and at most 1, got 1.5"),
    ("- {until: 0, weights: {far: 1}}\n- weights: {far: 1}", "until must be more than 0 and"),
    (
        "- {until: 0.5, weights: {far: 1}}\n- {until: 0.4, weights: {far: 1}}\n- weights: {far: 1}",
        "{file}, phase 2: until must be more than 0.5, where the phase before it ends, got 0.4",
    ),
    (
        "- weights: {nearer: 1}",
        "curriculum, phase 1: there is no starting point nearer; did you mean near?; there are far",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_a_file_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, text: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "curriculum.yaml"
    if text is not None:
        file.write_text(text)
    runs = tmp_path / "runs"
    flags = ["--checkpoint-dir", str(runs), "--curriculum", str(file)]
    assert main(TASK, DEFAULTS, flags) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message.format(file=file) in printed.err
    assert not runs.exists()


def test_a_curriculum_in_a_config_file_can_be_turned_off(tmp_path: Path) -> None:
    file, config = tmp_path / "curriculum.yaml", tmp_path / "config.yaml"
    file.write_text(PHASES)
    for value in (yaml.safe_load(PHASES), str(file)):
        config.write_text(yaml.safe_dump({"curriculum": value}))
        found = make_plan(DEFAULTS, ["--config", str(config)], "").config
        assert found.environment.curriculum == phases()
    off = make_plan(DEFAULTS, ["--config", str(config), "--curriculum", "none"], "").config
    assert off.environment.curriculum is None
    config.write_text("curriculum: [{until: 1}]")
    with pytest.raises(schema.RunError, match=r"config.yaml: curriculum, phase 1 has no 'weights'"):
        make_plan(DEFAULTS, ["--config", str(config)], "")


def test_help_says_that_it_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(TASK, DEFAULTS, ["--help"])
    assert "--curriculum FILE where to begin" in " ".join(capsys.readouterr().out.split())


def flags(parent: Path, updates: int, *more: str) -> list[str]:
    total = str(updates * STEPS_PER_UPDATE)
    often = ("--run-name", "run", "--log-interval", "1", "--save-interval", "4")
    return ["--checkpoint-dir", str(parent), "--total-timesteps", total, *often, *more]


def log(folder: RunFolder) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "train/steps_per_second"} for x in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    parent = tmp_path_factory.mktemp("whole")
    (parent / "curriculum.yaml").write_text(PHASES)
    more = ("--anneal-lr", "--normalize-observations", "--normalize-rewards")
    given = flags(parent, 12, "--curriculum", str(parent / "curriculum.yaml"), *more)
    assert main(TASK, DEFAULTS, [*given, "--eval-interval", "6", "--eval-episodes", "4"]) == 0
    return RunFolder(parent / "run")


@pytest.mark.slow
def test_training_follows_the_phases_and_evaluation_does_not(whole: RunFolder) -> None:
    starts = {
        line["update"]: (line["stats/start"], line["stats/latest_start"])
        for line in log(whole)
        if "stats/start" in line
    }
    # An episode that began in one phase may end in the next.
    assert all(starts[update] == (2, 2) for update in range(1, 7))
    assert 0 < starts[8][0] < 2
    assert starts[12] == (0, 0)
    evaluations = [line for line in log(whole) if "eval/stats/start" in line]
    assert [line["eval/stats/start"] for line in evaluations] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("half", [4, 8])
def test_resuming_is_exact_and_needs_no_file(tmp_path: Path, whole: RunFolder, half: int) -> None:
    """In a process of its own, from a checkpoint in the first and one in the last phase."""
    file = tmp_path / "curriculum.yaml"
    file.write_text(PHASES)
    more = ("--anneal-lr", "--normalize-observations", "--normalize-rewards")
    often = ("--eval-interval", "6", "--eval-episodes", "4")
    # What is evaluated best is kept, and an early checkpoint is not.
    before = often if half > 6 else ()
    given = flags(tmp_path, 12, "--curriculum", str(file), *more, *before)
    assert main(TASK, DEFAULTS, given) == 0
    file.unlink()
    cut = RunFolder(tmp_path / "run")
    kept = cut.checkpoints.path(half)
    command = [sys.executable, str(MARATHON), "--resume", str(kept), "--rewind", *often]
    subprocess.run(command, check=True, capture_output=True, text=True)
    ours, theirs = (read_arrays(x.checkpoints.path(12)) for x in (cut, whole))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name, strict=True)
    assert log(cut) == log(whole)


_CONFIG = PPOConfig(num_envs=8, num_steps=4, learning_rate=1e-3)


def model(key: jax.Array) -> MLPActorCritic:
    return MLPActorCritic(4, 2, 8, 1, key=key)


@pytest.mark.slow
def test_without_the_runner_and_for_several_seeds():
    curriculum = Starts(phases().schedule(("far", "middle", "near")))
    more: Any = {"metrics": TASK.metrics, "curriculum": curriculum}
    keys = jax.random.split(jax.random.key(0), 2)
    states = init_seeds(Trainer(Marathon(), _CONFIG, **more), model, keys)
    states, logs = train_seeds(
        Trainer(Marathon(), _CONFIG, **more), states, 8 * _CONFIG.batch_size, log_interval=2
    )
    assert [line.values["stats/start"] for line in logs[0].records][:2] == [2, 2]
    for seed, key in enumerate(keys):
        model_key, init_key = jax.random.split(key)
        alone = Trainer(Marathon(), _CONFIG, **more).init(model(model_key), init_key)
        assert set(np.asarray(alone.learner.rollout.vector_state.env_state[0])) == {2}
        alone = Trainer(Marathon(), _CONFIG, **more).train(alone, 8 * _CONFIG.batch_size)
        for one, other in zip(
            jax.tree.leaves(alone.learner.rollout.vector_state),
            jax.tree.leaves(select_seed(states, seed).learner.rollout.vector_state),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.usefixtures("forgotten")
def test_weights_that_change_compile_nothing_again(compiled: Callable[[], list[str]]):
    curriculum = Starts(phases().schedule(("far", "middle", "near")))
    state = Trainer(Marathon(), _CONFIG).init(model(jax.random.key(0)), jax.random.key(1))
    Trainer(Marathon(), _CONFIG, curriculum=curriculum).train(
        state, 8 * _CONFIG.batch_size, log_interval=1
    )
    assert compiled().count("jit(run_chunk)") == 1


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TimeLimit(env, 50)])
def test_arrays_of_an_environment_reach_its_resets(wrap: Any):
    """Traced ones, too: a reset runs in a conditional of its own, for few at a time."""
    env = wrap(Marathon(jnp.array([0.0, 1.0, 0.0])))
    check_env(env)

    @jax.jit
    def restarted(weights: jax.Array) -> jax.Array:
        vector_env = VectorEnv(wrap(Marathon(weights)), 16)
        state, _ = vector_env.reset(jax.random.key(0))
        for n in range(8):
            state, timestep = vector_env.step(jax.random.key(n), state, jnp.ones(16, jnp.int32))
        return timestep.info["start"]

    for start in range(3):
        assert set(np.asarray(restarted(jnp.eye(3)[start]))) == {start}
