"""Curricula: their files, their effect on learning, their memories, and resumed runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import even_starts
from marathon import CELLS, DEFAULTS, TASK, Marathon
from ppo_mask.checkpoints import RunFolder
from ppo_mask.envs import TimeLimit, VectorEnv, check_env
from ppo_mask.errors import RunError
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import Phases, main, make_plan
from ppo_mask.training import History, Trainer, init_seeds, select_seed, train_seeds
from virtual_devices import printed_with

PHASES = """
- until: 0.5
  weights: {near: 1}
- until: 0.75
  weights: {near: 1, far: 3}
- weights: {far: 1}
"""
STEPS_PER_UPDATE = 32


def phases(text: str = PHASES) -> Phases:
    return Phases.from_plain(yaml.safe_load(text), "--curriculum")


def test_weights_are_those_of_the_phase_that_a_progress_lies_in():
    schedule = phases().schedule(CELLS)
    near, mixed, far = [0, 0, 1], [3, 0, 1], [1, 0, 0]
    wanted = {0: near, 0.49: near, 0.5: mixed, 0.74: mixed, 0.75: far, 0.99: far, 1.0: far}
    for progress, weights in wanted.items():
        np.testing.assert_array_equal(schedule(jnp.float32(progress)), weights)


@jax.jit
def weights_at(schedule: Any, updates: Any, total: Any) -> Any:
    return jax.vmap(lambda update: schedule(update / total))(updates)


@pytest.mark.parametrize("total", [3, 10, 49, 1000])
def test_a_phase_ends_with_the_update_that_it_should(total):
    """Progress is a rounded number: no border moves by an update for it."""
    tenths = "".join(f"- {{until: 0.{n}, weights: {{{n}: 1}}}}\n" for n in range(1, 10))
    schedule = phases(tenths + "- weights: {10: 1}").schedule([str(n) for n in range(1, 11)])
    weights = weights_at(schedule, np.arange(1000, dtype=np.int32), np.int32(total))
    got = np.argmax(weights, axis=-1)[:total]
    np.testing.assert_array_equal(got, np.arange(total) * 10 // total)


def test_a_single_phase_is_a_fixed_mixture():
    schedule = phases("[{weights: {b: 1e-3}}]").schedule(("a", "b"))
    np.testing.assert_allclose(schedule(jnp.float32(0.3)), [0, 1e-3])


BAD_FILES = [
    (None, "cannot read {file}: No such file or directory"),
    ("- [", "{file} is not valid YAML"),
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
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "curriculum.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RunError) as error:
        Phases.from_text(str(file)).schedule(CELLS)
    assert message.format(file=file) in str(error.value)


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
    with pytest.raises(RunError, match=r"config.yaml: curriculum, phase 1 has no 'weights'"):
        make_plan(DEFAULTS, ["--config", str(config)], "")


def test_help_says_that_it_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(TASK, DEFAULTS, ["--help"])
    assert "--curriculum FILE where to begin" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_training_follows_the_phases_evaluation_does_not_and_resuming_needs_no_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "curriculum.yaml"
    file.write_text(PHASES)
    often = ["--log-interval", "1", "--save-interval", "8", "--eval-interval", "6"]
    given = ["--checkpoint-dir", str(tmp_path), "--run-name", "run", "--curriculum", str(file)]
    given += [*often, "--eval-episodes", "4", "--total-timesteps", str(12 * STEPS_PER_UPDATE)]
    assert main(TASK, DEFAULTS, given) == 0
    file.unlink()
    folder = RunFolder(tmp_path / "run")
    assert main(TASK, DEFAULTS, ["--resume", str(folder.checkpoints.path(8)), "--rewind"]) == 0
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    starts = {line["update"]: line["stats/start"] for line in lines if "stats/start" in line}
    # An episode that began in one phase may end in the next.
    assert all(starts[update] == 2 for update in range(1, 7))
    assert 0 < np.mean([starts[update] for update in (7, 8, 9) if update in starts]) < 2
    assert starts[12] == 0
    assert [x["eval/stats/start"] for x in lines if "eval/stats/start" in x] == [0, 0]


@pytest.mark.usefixtures("forgotten")
def test_a_curriculum_sees_progress_and_every_step_and_compiles_nothing_again(
    compiled: Callable[[], list[str]],
) -> None:
    history = History()
    memory = cast(Any, even_starts.train(12, [history], metrics=TASK.metrics).memory)
    starts = [line.values["stats/start"] for line in history.records]
    assert starts[:3] == [2, 2, 2]
    assert all(start < 2 for start in starts[3:])
    assert memory["steps"] == 12 * even_starts.CONFIG.batch_size
    assert (memory["ends"] > 3).all()
    assert compiled().count("jit(run_chunk)") == 1


def test_arrays_of_an_environment_reach_its_resets():
    """Traced ones, too: a reset runs in a conditional of its own, for few at a time."""
    check_env(TimeLimit(Marathon(jnp.array([0.0, 1.0, 0.0])), 50))

    @jax.jit
    def restarted(weights: jax.Array) -> jax.Array:
        vector_env = VectorEnv(TimeLimit(Marathon(weights), 50), 16)

        def step(state: Any, key: jax.Array) -> Any:
            state, timestep = vector_env.step(key, state, jnp.ones(16, jnp.int32))
            return state, timestep.info["start"]

        state, _ = vector_env.reset(jax.random.key(0))
        return jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 8))[1][-1]

    for start in range(3):
        assert set(np.asarray(restarted(jnp.eye(3)[start]))) == {start}


@pytest.mark.slow
def test_a_memory_on_two_devices_is_that_of_one():
    memory = cast(Any, even_starts.train(12).memory)
    for name, value in printed_with(2, even_starts.__file__).items():
        np.testing.assert_array_equal(memory[name], value)


@pytest.mark.slow
def test_seeds_have_memories_of_their_own():
    trainer = Trainer(Marathon(), even_starts.CONFIG, curriculum=even_starts.EvenStarts())
    states = init_seeds(
        trainer,
        lambda key: MLPActorCritic(4, 2, 8, 1, key=key),
        jnp.stack([jax.random.key(seed) for seed in range(2)]),
    )
    states, _ = train_seeds(trainer, states, 4 * even_starts.CONFIG.batch_size)
    one, other = (cast(Any, select_seed(states.memory, seed)) for seed in range(2))
    assert one["steps"] == other["steps"] == 4 * even_starts.CONFIG.batch_size
    assert (one["ends"] != other["ends"]).any()
