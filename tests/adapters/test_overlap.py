"""Halves of a batch on the host are stepped in turn, and nothing else is different."""

from functools import partialmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.from_gymnasium._workers import Workers
from ppo_mask.errors import RunError
from ppo_mask.ppo import collect, start_rollout
from python_games import Climb, InvalidParts


def roll(env, num_envs, num_steps, times=2, kind=pm.MLPActorCritic):
    """Rollouts, one after another."""
    vector = pm.VectorEnv(env, num_envs)
    model = kind.for_env(env, hidden_dim=8, key=jax.random.key(0))
    rolled = eqx.filter_jit(lambda state, key: collect(vector, model, state, key, num_steps))
    state, found = start_rollout(vector, model, jax.random.key(1)), []
    for number in range(times):
        state, transitions = rolled(state, jax.random.key(number))
        found.append(transitions)
    assert env.take_failure() is None
    env.close()
    return found, state


def assert_close(ours, theirs):
    """A matrix product of half the rows may round in another way."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "num_envs", "num_steps"),
    [(Climb, 4, 20), (InvalidParts, 5, 3), (Climb, 2, 2), (Climb, 3, 1), (Climb, 1, 4)],
)
def test_rollouts_are_the_same(make, num_envs, num_steps):
    settings = {"num_workers": 2, "max_episode_steps": 7}
    ours, theirs = (
        roll(GymnasiumEnv(make, overlap=overlap, **settings), num_envs, num_steps, 4)
        for overlap in (True, False)
    )
    assert_close(ours[0], theirs[0])
    states = [
        (x.observation, x.action_mask, x.vector_state.episode_length) for _, x in (ours, theirs)
    ]
    jax.tree.map(np.testing.assert_array_equal, *states)


@pytest.mark.long
def test_hidden_states_follow_their_environments():
    ours, theirs = (
        roll(
            GymnasiumEnv(Climb, flatten=True, num_workers=1, overlap=overlap),
            3,
            9,
            kind=pm.GRUActorCritic,
        )
        for overlap in (True, False)
    )
    assert_close((ours[0], ours[1].hidden), (theirs[0], theirs[1].hidden))


@pytest.mark.long
def test_one_half_is_stepped_while_the_policy_acts_in_the_other(monkeypatch):
    log = []
    for name in ("begin", "finish"):

        def logged(self, group, name, call):
            log.append(f"{name} {group}")
            call(self, group)

        call = partialmethod(logged, name=name, call=getattr(Workers, name))
        monkeypatch.setattr(Workers, name, call)
    roll(GymnasiumEnv(Climb, flatten=True, num_workers=2, overlap=True), 4, 4, times=1)
    together = ["begin 0", "begin 1", "finish 0", "finish 1"]
    turn = ["finish 0", "begin 0", "finish 1", "begin 1"]
    assert log == [*together, "begin 0", "begin 1", *turn, *turn, "finish 0", "finish 1"]


@pytest.mark.long
def test_training_evaluates_resumes_and_ends_as_without_overlap(capfd):
    env = GymnasiumEnv(Climb, flatten=True, num_workers=2, overlap=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=16))
    state = trainer.train(trainer.init(model, jax.random.key(1)), 64)
    evaluated = [pm.evaluate(state.model, env, jax.random.key(2), 5, max_steps=9) for _ in "12"]
    assert evaluated[0].episode_return.tolist() == evaluated[1].episode_return.tolist()
    after = trainer.train(state, 192)
    assert after.update == 3
    assert "new episodes begin" not in capfd.readouterr().err
    assert trainer.train(state, 192).update == 3  # Its environments have gone on since.
    assert "4 new episodes begin in place of those that ran" in capfd.readouterr().err
    assert all(
        jnp.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(after.model, eqx.is_array))
    )
    env.close()


@pytest.mark.long
def test_what_is_wrong_in_one_half_is_one_line():
    env = GymnasiumEnv(lambda: Climb(crash_at=5), flatten=True, num_workers=2, overlap=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=16))
    with pytest.raises(
        pm.training.TrainingError, match=r"raised .* at .*python_games.py:\d+ \(step\)$"
    ):
        trainer.train(trainer.init(model, jax.random.key(1)), 64)


def test_one_environment_for_both_halves_is_refused():
    one = Climb()
    env = GymnasiumEnv(lambda: one, num_workers=1, overlap=True)
    with pytest.raises(RunError, match="returned the same environment twice"):
        pm.VectorEnv(env, 2).reset(jax.random.key(0))


def test_a_step_that_has_begun_is_not_taken_with_another_action():
    env = GymnasiumEnv(Climb, num_workers=1, overlap=True)
    vector = pm.VectorEnv(env, 2)
    state, timestep = vector.reset(jax.random.key(0))
    one, other = (jax.tree.map(lambda x, i=i: x[i : i + 1], state) for i in range(2))
    first, last = (
        timestep.action_mask[:1].argmax(axis=1),
        4 - timestep.action_mask[:1, ::-1].argmax(1),
    )
    assert first != last
    then = env.begin_step(one.env_state, first.astype(jnp.int32), other.env_state)
    np.testing.assert_array_equal(then.numbers, other.env_state.numbers)
    keys = jax.random.split(jax.random.key(1), (2, 1))
    with pytest.raises(RunError, match="begun with other actions"):
        vector.step_with(keys, one, last.astype(jnp.int32))


def test_overlap_needs_workers():
    with pytest.raises(ValueError, match="overlap needs workers: num_workers must be 1 or more"):
        GymnasiumEnv(Climb, overlap=True)
