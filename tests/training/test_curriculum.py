"""Curricula: their files, their effect on learning, their memories, and resumed runs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import even_starts
from marathon import DEFAULTS, TASK, Marathon
from own_process import printed_with
from ppo_mask.envs import TimeLimit, VectorEnv, check_env
from ppo_mask.errors import RunError
from ppo_mask.runner import make_parts, make_plan, make_trainer
from ppo_mask.runner._phases import PhaseSettings
from ppo_mask.runner._reader import merge, read_values
from ppo_mask.training import At, History

PHASES = """
- {until: 0.5, near: 1, far: 0}
- {until: 0.75, near: 1, far: 3, gamma: 0.5, lr: [1e-3, 0]}
- gamma: [0.5, 1]
"""
STEPS_PER_UPDATE = DEFAULTS.algorithm.batch_size


def with_phases(text: str, updates: int = 8) -> Any:
    values = {"phases": yaml.safe_load(text), "total_timesteps": updates * STEPS_PER_UPDATE}
    return merge(DEFAULTS, read_values(DEFAULTS, values, "file.yaml"))


@eqx.filter_jit
def of_each_update(trainer: Any, total: Any) -> Any:
    """The numbers of 1,000 updates; the total is traced, as in training."""

    def of(update: Any) -> Any:
        at = At(jax.random.key(0), update, total, None)
        ppo, envs = trainer._scheduled(at), trainer._vector_env(at, ())
        return jnp.float32(ppo.gamma), jnp.float32(ppo.learning_rate), envs.env.starting_weights

    return jax.vmap(of)(jnp.arange(1000, dtype=jnp.int32))


def numbers_of(config: Any, updates: int = 8) -> Any:
    """Each update's discount, learning rate and starting weights."""
    env, curriculum = make_parts(TASK, config)
    trainer: Any = make_trainer(TASK, config, env, curriculum, None)
    return [np.asarray(x)[:updates] for x in of_each_update(trainer, jnp.float32(updates))]


def test_numbers_are_those_of_their_phase_and_may_go_linearly():
    config = with_phases(PHASES)
    gamma, rate, weights = numbers_of(config)
    own = config.algorithm
    np.testing.assert_allclose(gamma, [own.gamma] * 4 + [0.5, 0.5, 0.5, 0.75], rtol=1e-6)
    plain = [own.learning_rate]
    np.testing.assert_allclose(rate, plain * 4 + [1e-3, 5e-4] + plain * 2, rtol=1e-6)
    np.testing.assert_array_equal(weights, [[0, 0, 1]] * 4 + [[3, 0, 1]] * 2 + [[1, 0, 0]] * 2)


@pytest.mark.parametrize("total", [3, 10, 49, 1000])
@pytest.mark.parametrize("unit", ["share", "steps"])
def test_a_phase_ends_with_the_update_that_it_should(total, unit):
    """Progress is a rounded number: no border moves by an update for it."""
    size = 1 if unit == "share" else total * STEPS_PER_UPDATE
    ends = [n / 10 * size for n in range(1, 10)]
    text = "".join(f"- {{until: {end}, gamma: 0.{n}}}\n" for n, end in enumerate(ends))
    gamma, _, _ = numbers_of(with_phases(text + "- gamma: 0.9", total), total)
    np.testing.assert_allclose(gamma, np.arange(total) * 10 // total / 10, atol=1e-6)


BAD_FILES = [
    ("[]", "phases must be a list of phases, got []"),
    ("{until: 1}", "phases must be a list of phases, got {'until': 1}"),
    ("[0.5]", "phases, phase 1 must hold 'name: value' lines, got 0.5"),
    ("[{near: 1}, {near: 1}]", "phases, phase 1 has no 'until'"),
    ("[{until: 1}]", "phases, phase 1 is the last one, which needs no 'until'"),
    ("[{until: soon}, {}]", "phase 1: until must be a finite number, got 'soon'"),
    ("[{until: 0}, {}]", "phase 1: until must be more than 0, got 0"),
    ("[{until: 0.5}, {until: 0.4}, {}]", "phase 2: until must be more than 0.5, got 0.4"),
    ("[{until: 0.5}, {until: 64}, {}]", "each until must be in steps, or each a share of the run"),
    ("[{gama: 1}]", "phases, phase 1: unknown setting gama; did you mean gamma?"),
    ("[{num_envs: 1}]", "phase 1: num_envs cannot change; there are far, middle, near"),
    ("[{ent-coef: 1, ent_coef: 2}]", "phases, phase 1 gives ent_coef twice"),
    ("[{lr: 1, learning_rate: 2}]", "phases, phase 1 gives learning_rate twice"),
    ("[{gamma: 2}]", "phase 1: gamma must be at most 1, got 2"),
    ("[{near: [0, -1]}]", "phase 1: near must be at least 0, got -1"),
    ("[{near: [0, 1, 2]}]", "phase 1: near must be a number, got [0, 1, 2]"),
    ("[{until: 9, target_kl: 1}, {}]", "target_kl must have a value in all phases, or in none"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_phases_that_cannot_be_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"phases: {text}")
    with pytest.raises(RunError) as error:
        make_plan(DEFAULTS, ["--config", str(config)], "")
    assert message in str(error.value)


def test_phases_come_from_a_file_or_a_config_and_flags_do_not_contradict_them(
    tmp_path: Path,
) -> None:
    file, config = tmp_path / "phases.yaml", tmp_path / "config.yaml"
    file.write_text(PHASES)
    for value in (yaml.safe_load(PHASES), str(file)):
        config.write_text(yaml.safe_dump({"phases": value}))
        found = make_plan(DEFAULTS, ["--config", str(config)], "").config.run.phases
        assert found == with_phases(PHASES).run.phases
        assert found is not None
        assert PhaseSettings.from_plain(found.to_plain(), "") == found
    with pytest.raises(RunError, match="--gamma changes from phase to phase in this run: give"):
        make_plan(DEFAULTS, ["--config", str(config), "--gamma", "0.9"], "")
    off = make_plan(DEFAULTS, ["--config", str(config), "--gamma=0.9", "--phases=none"], "").config
    assert off.run.phases is None


def test_a_curriculum_that_changes_in_more_than_numbers_is_refused() -> None:
    task = dataclasses.replace(TASK, curriculum=lambda settings: lambda env, progress: env)
    with pytest.raises(RunError, match="phases: far, near change more than numbers"):
        make_parts(task, with_phases(PHASES))


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
