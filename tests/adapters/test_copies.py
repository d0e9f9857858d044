"""Copies of Gymnasium's environments, and environments in processes of their own."""

import copy
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest

import hackmatrix.gymnasium
import ppo_mask as pm
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.envs.probes import MaskedLocks


def make_locks(render_mode):
    return ToGymnasium(MaskedLocks(3, 2), renderers={"ansi": repr}, render_mode=render_mode)


gymnasium.register("Locks-v0", entry_point=make_locks, disable_env_checker=True)
WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}
ENVS = {
    "one": lambda: ToGymnasium(MaskedLocks(3, 2)),
    "wrapped": lambda: ToGymnasium(pm.TimeLimit(pm.TimeLimit(MaskedLocks(3, 2), 9), 2)),
    "of many kinds": lambda: ToGymnasium(pm.MultiTask([MaskedLocks(3, 2), MaskedLocks(2, 2)])),
    "Gymnasium's wrappers": lambda: gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.TimeLimit(ToGymnasium(MaskedLocks(3, 2)), 2)
    ),
    "vector": lambda: ToGymnasiumVector(MaskedLocks(3, 2), 3),
    "made by an id, rendered": lambda: gymnasium.make("Locks-v0", render_mode="ansi"),
}


def play(env, steps=8):
    """All that an environment gives in so many steps."""
    given = []
    for _ in range(steps):
        actions = env.unwrapped.action_masks().argmax(axis=-1)
        observation, reward, terminated, truncated, _ = env.step(actions)
        given += [np.array(x).tolist() for x in (observation, reward, terminated, truncated)]
        if not isinstance(env, gymnasium.vector.VectorEnv) and (terminated or truncated):
            given.append(np.array(env.reset()[0]).tolist())
        if env.render_mode:
            given.append(env.render())
    return given


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ENVS)
def test_copy_plays_on_by_itself(kind, way):
    env = ENVS[kind]()
    env.reset(seed=3)
    play(env, 1)
    other, third = WAYS[way](env), WAYS[way](env)
    played = play(other)
    assert played == play(env)  # Which the copy's steps have not moved.
    assert played == play(WAYS[way](third))


@pytest.mark.parametrize("way", WAYS)
def test_the_game_can_be_copied(way):
    env = gymnasium.make(hackmatrix.gymnasium.ID, max_steps=5, render_mode="ansi")
    assert WAYS[way](env).unwrapped.env == env.unwrapped.env


@pytest.mark.parametrize("way", WAYS)
def test_copy_before_the_first_reset_can_be_reset(way):
    env = ENVS["one"]()
    other = WAYS[way](env)
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step(0)
    other.reset(seed=1)
    env.reset(seed=1)
    assert play(other) == play(env)


@pytest.mark.slow
def test_environments_run_in_processes_after_jax_was_used():
    make = partial(ToGymnasium, MaskedLocks(3, 2))
    make().reset(seed=0)
    several = gymnasium.vector.AsyncVectorEnv([make] * 2, context="spawn")
    several.reset(seed=0)
    masks = several.call("action_masks")
    assert several.step([mask.argmax() for mask in masks])[1].shape == (2,)
    several.close()
