"""400 recorded positions as one batch, what is seen of them, and networks that tell them apart.

All of one shape, so that a process compiles it once.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import games
import recordings
from hackmatrix import HackMatrix, State, positions
from hackmatrix.observation import CompactObservation, TimeAwareObservation
from ppo_mask.envs import TimeStep


class Views(NamedTuple):
    """What the player sees, in each form, and which actions are allowed."""

    flat: np.ndarray
    compact: CompactObservation
    timed: TimeAwareObservation
    mask: np.ndarray


@cache
def starts() -> list[dict[str, Any]]:
    """The positions as they were recorded."""
    return [each["state"] for each in recordings.read("observations.jsonl.gz")]


@cache
def states() -> State:
    """The positions as states, of NumPy's arrays: rows of JAX's would each be an operation."""
    with jax.ensure_compile_time_eval():
        return jax.device_get(positions.load_all(starts()))


@jax.jit
@jax.vmap
def see(state: State) -> Views:
    """What is seen of a batch of 400 positions."""
    compact, timed = (
        HackMatrix(compact=True).observe(state),
        HackMatrix(time_aware=True).observe(state),
    )
    return Views(games.ENV.observe(state), compact, timed, games.ENV.action_mask(state))


@cache
def views() -> Views:
    with jax.ensure_compile_time_eval():  # It is kept, also where it is first asked for in a trace.
        return jax.device_get(see(states()))


def new_games(env: HackMatrix = games.ENV) -> tuple[State, TimeStep]:
    """64 games that begin, by the program that begins one."""
    begun = [env.reset(key) for key in jax.random.split(jax.random.key(0), 64)]
    return jax.tree.map(lambda *x: np.stack(x), *jax.device_get(begun))


def row(tree: Any, number: int | slice) -> Any:
    """One row, or some, of a batch."""
    return jax.tree.map(lambda x: x[number], tree)


def noisy(model: Any) -> Any:
    """With random weights in every layer, the last one's large enough to have preferences."""
    leaves, structure = jax.tree.flatten(eqx.filter(model, eqx.is_array))
    random = np.random.default_rng(2)
    leaves = [x + 0.3 * random.standard_normal(x.shape, np.float32) for x in leaves]
    return eqx.combine(jax.tree.unflatten(structure, leaves), model)
