"""Trains, evaluates and steps shared programs, whatever JAX's settings, and prints what came of it.

``python any_settings.py NAME…``: of those in ``programs.py``.
"""

import json
import sys
from typing import Any

import equinox as eqx
import jax
import numpy as np

import ppo_mask as pm
import programs
from ppo_mask.adapters.to_gymnasium import ToGymnasium


def outcome(program: programs.Program) -> Any:
    """Parameters, metrics and rewards; no array of 64 bits may be in the state."""
    state, history = program.train(2, log_interval=2)
    arrays = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    assert not [x.dtype for x in arrays if str(x.dtype).endswith("64")]
    key = jax.random.key(2)
    played = [
        pm.evaluate(state.model, program.env, key, 4, max_steps=20, greedy=greedy).values
        for greedy in (True, False)
    ]
    env = ToGymnasium(pm.TimeLimit(program.env, 9))
    env.reset(seed=0)
    first = np.array([np.argmax(part) for part in np.split(env.action_masks(), _parts(env))])
    stepped = env.step(first if len(first) > 1 else first[0])[1:4]
    parameters = eqx.filter(state.model, eqx.is_inexact_array)
    logged = {name: x for name, x in history.records[-1].values.items() if "second" not in name}
    return [[float(np.sum(x)) for x in jax.tree.leaves(parameters)], played, stepped, logged]


def _parts(env: Any) -> Any:
    return np.cumsum(getattr(env.action_space, "nvec", [env.action_masks().size]))[:-1]


if __name__ == "__main__":
    print(json.dumps([outcome(getattr(programs, name)()) for name in sys.argv[1:]], default=str))
