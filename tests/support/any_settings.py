"""What a program does with both libraries, whatever JAX's settings; prints what came of it as JSON.

``python any_settings.py FOLDER (probes | game)``: the folder has policies to load, if it is there.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ppo_mask as pm
from ppo_mask.checkpoints import load_policy, save_policy
from ppo_mask.envs import AbstractEnv, VectorEnv, probes
from ppo_mask.networks import network_for, split_features
from ppo_mask.training import init_seeds, train_seeds

EVERYTHING: dict[str, Any] = {
    "anneal_lr": True,
    "precision": "bfloat16",
    "normalize_observations": True,
    "normalize_rewards": True,
    "target_kl": 10.0,
    "clip_value": True,
    "gradient_accumulation": 2,
    "learning_rate": jnp.asarray(1e-3),
}


class Board(pm.AbstractEnv[jax.Array]):
    """Shows a board, a hand and a number, and has numbers of Python's in its timesteps."""

    num_actions: int = 3

    def reset(self, key):
        state = jax.random.randint(key, (), 0, 5, jnp.int32)
        return state, self._show(state, 0)

    def step(self, key, state, action):
        return (state + action) % 5, self._show((state + action) % 5, 1)

    def _show(self, state, reward):
        board = jnp.zeros((5, 4, 2), bool).at[state, 0, 0].set(True)
        shown = {"board": board, "hand": state.astype(jnp.int8), "x": jnp.bfloat16(0.5)}
        mask = jnp.arange(3, dtype=jnp.int32) != state
        return pm.TimeStep(shown, mask, reward, state == 4, False, {"state": state})


def _types(tree: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): str(x.dtype) for path, x in leaves}


def _numbers(tree: Any) -> list[float]:
    return [float(np.asarray(x, np.float64).sum()) for x in jax.tree.leaves(tree)]


def _train(
    env: AbstractEnv[Any], make: Callable[[Any], Any], folder: Path, updates: int, **config: Any
) -> Any:
    metrics = {"first": pm.Metric(lambda action, info: action == 0)}
    trainer = pm.Trainer(env, pm.PPOConfig(num_envs=8, num_steps=8, **config), metrics=metrics)
    history = pm.History()
    state = trainer.init(make(jax.random.key(0)), jax.random.key(1))
    before = _types(state)
    state = trainer.train(state, updates * 64, callbacks=[history], log_interval=2)
    assert _types(state) == before
    results = [
        pm.evaluate(state.model, env, jax.random.key(2), 4, max_steps=20, greedy=greedy)
        for greedy in (True, False)
    ]
    wide = [name for name, type_ in before.items() if type_.endswith("64")]
    assert not wide, wide
    if not folder.is_dir():
        save_policy(state.model, folder)
    classes = [type(state.model), type(split_features(state.model).network)]
    loaded = load_policy(folder, classes).model
    assert _types(loaded) == _types(state.model)
    return {
        "parameters": _numbers(eqx.filter(state.model, eqx.is_inexact_array)),
        "loaded": _numbers(eqx.filter(loaded, eqx.is_inexact_array)),
        "evaluated": [result.values for result in results],
        "logged": [
            {name: x for name, x in record.values.items() if "second" not in name}
            for record in history.records
        ],
        "actions": _played(env),
    }


def _played(env: AbstractEnv[Any]) -> Any:
    """A vector of environments, each of which takes the first action that is allowed."""
    vector = VectorEnv(env, 3)
    state, timestep = vector.reset(jax.random.key(3))
    rewards: list[Any] = []
    step = eqx.filter_jit(lambda key, state, action: vector.step(key, state, action))
    for number in range(4):
        action = timestep.action_mask.argmax(axis=-1).astype(jnp.int32)
        state, timestep = step(jax.random.key(number), state, action)
        rewards += [timestep.reward.tolist(), action.tolist()]
    return rewards


def _gymnasium(env: AbstractEnv[Any]) -> Any:
    from ppo_mask.adapters.to_gymnasium import ToGymnasium
    from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector

    one = ToGymnasium(env)
    observation, _ = one.reset(seed=0)
    reward = one.step(one.action_masks().argmax())[1]
    several = ToGymnasiumVector(env, 3)
    several.reset(seed=0)
    rewards = several.step(several.action_masks().argmax(axis=1))[1]
    return [str(observation.dtype), reward, rewards.tolist()]


def _gymnax() -> Any:
    from gymnax.environments.classic_control.cartpole import CartPole

    from ppo_mask.adapters.gymnax import GymnaxEnv
    from ppo_mask.adapters.to_gymnax import ToGymnax

    state, _ = GymnaxEnv(CartPole()).reset(jax.random.key(0))
    _, timestep = GymnaxEnv(CartPole()).step(jax.random.key(0), state, jnp.int32(1))
    ours = ToGymnax(probes.MaskedLocks())
    _, inner = ours.reset_env(jax.random.key(0), ours.default_params)
    reward = ours.step_env(jax.random.key(0), inner, 1, ours.default_params)[2]
    return [str(timestep.reward.dtype), float(timestep.reward), float(reward)]


def _probes(folder: Path) -> Any:
    weights = jnp.array([1.0, 2.0])
    two = pm.MultiTask([probes.ActionValue(), probes.MatchObservation()], weights)
    locks, cue = probes.MaskedLocks(length=3, keys=2), probes.RememberedCue(2)

    mlp, gru = pm.MLPActorCritic.for_env, pm.GRUActorCritic.for_env

    def of(network: Any, env: Any, **sizes: Any) -> Any:
        return lambda key: network(env, hidden_dim=8, key=key, **sizes)

    board = of(network_for, Board())
    seeds_trainer = pm.Trainer(locks, pm.PPOConfig(num_envs=8, num_steps=8))
    seeds = init_seeds(seeds_trainer, of(mlp, locks), jax.random.split(jax.random.key(5), 2))
    _, histories = train_seeds(seeds_trainer, seeds, 2 * 64)
    return {
        "everything": _train(
            pm.TimeLimit(locks, 2), of(mlp, locks, layer_norm=True), folder / "0", 3, **EVERYTHING
        ),
        "two": _train(two, of(mlp, two), folder / "1", 2),
        "board": _train(Board(), board, folder / "3", 2),
        "low": _train(Board(), board, folder / "4", 2, **EVERYTHING),
        "gru": _train(cue, of(gru, cue), folder / "2", 2),
        "seeds": [history.records[-1].values["train/entropy"] for history in histories],
        "gymnasium": _gymnasium(locks),
        "gymnax": _gymnax(),
    }


def _game(folder: Path) -> Any:
    from hackmatrix import HackMatrix, HeadStart, Shaping, positions
    from hackmatrix.play.policies import SCRIPTED
    from hackmatrix.task import TASK
    from ppo_mask.runner import NetworkSettings

    head_start = HeadStart(share=0.5, programs=0.5, score=2)
    shaping = Shaping(jnp.ones(15), 1.0, distance_potential=True)
    env = HackMatrix(max_steps=20, starting_weights=jnp.ones(8), compact=True)
    env = dataclasses.replace(env, head_start=head_start, shaping=shaping)
    # What other networks make of the game is traced by a faster test.
    make = partial(TASK.networks["mlp"], env, NetworkSettings(hidden_dim=8))
    results = {"mlp": _train(env, make, folder / "mlp", 1)}
    env = HackMatrix(max_steps=20)
    state, _ = env.reset(jax.random.key(0))
    position = positions.dump(state)
    assert positions.dump(positions.load(position)) == position
    fighter = pm.evaluate(SCRIPTED["fighter"], env, jax.random.key(0), 2).values
    return results | {"position": position, "fighter": fighter}


if __name__ == "__main__":
    run = {"probes": _probes, "game": _game}[sys.argv[2]]
    print(json.dumps(run(Path(sys.argv[1])), default=str))
