"""The measured subjects: for each subject, a function to compile and its first argument.

A function's result has the structure of its argument, so a run continues from the last run.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hackmatrix import HackMatrix
from hackmatrix.networks import player_centered_mlp
from hackmatrix.networks.features import NUM_FEATURES
from hackmatrix.rules.batching import join
from hackmatrix.rules.bits import nth_bit
from hackmatrix.task import METRICS
from ppo_mask.acting import collect, start_rollout
from ppo_mask.devices.sharding import make_mesh, shard_over_envs, sharding
from ppo_mask.envs import VectorEnv
from ppo_mask.ppo import PPO
from ppo_mask.training import Trainer
from ppo_mask.training._state import place_state


class Subject(NamedTuple):
    """Something to measure.

    Attributes:
        run: a pure function, which is compiled with its argument donated.
        start: the argument of the first run.
        steps: environment steps of one run.
    """

    run: Callable[[Any], Any]
    start: Any
    steps: int


def environment(num_envs: int, num_steps: int = 64, compact: bool = True) -> Subject:
    """Steps of the game with random valid actions, masks, observations and auto-reset."""
    env = VectorEnv(HackMatrix(compact=compact), num_envs)

    def step(carry: Any) -> Any:
        key, state, mask, _ = carry
        key, action_key, step_key = jax.random.split(key, 3)
        state, timestep = env.step(step_key, state, random_actions(action_key, mask))
        return key, state, timestep.action_mask, timestep.observation

    state, timestep = eqx.filter_jit(env.reset)(jax.random.key(0))
    start = (jax.random.key(1), state, timestep.action_mask, timestep.observation)
    return played(step, start, num_envs, num_steps)


def random_actions(key: Array, mask: Array) -> Array:
    """Samples a valid action for each environment, uniformly; there are at most 32 actions."""

    # Samples a rank among the valid actions and finds the bit of that rank. This is faster than
    # sampling from logits, which only a policy needs.
    if mask.shape[1] > 32:
        raise ValueError(f"random actions are drawn of 32 at most, got {mask.shape[1]}")
    flags = np.uint32(1) << np.arange(mask.shape[1], dtype=np.uint32)
    valid = join(jnp.where(mask, flags, jnp.uint32(0)))
    count = jax.lax.population_count(valid).astype(jnp.float32)
    rank = jnp.floor(jax.random.uniform(key, count.shape) * count)
    return nth_bit(valid, rank.astype(jnp.int32))


def played(step: Callable[[Any], Any], start: Any, num_envs: int, num_steps: int) -> Subject:
    """Makes a subject that runs many steps in one program.

    A step's result must contain the observation; otherwise the compiler would not compute it.
    """

    def run(carry: Any) -> Any:
        return jax.lax.fori_loop(0, num_steps, lambda _, carry: step(carry), carry)

    return Subject(run, start, num_envs * num_steps)


def collected(num_envs: int, num_steps: int = 128) -> Subject:
    """A rollout with the default network."""
    env = VectorEnv(HackMatrix(compact=True), num_envs)
    model = player_centered_mlp(key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def run(carry: Any) -> Any:
        key, arrays, state, _ = carry
        key, rollout_key = jax.random.split(key)
        model = eqx.combine(arrays, static)
        state, transitions = collect(env, model, state, rollout_key, num_steps)
        # Without the sum, the compiler would drop the arrays that nothing else uses.
        kept = jax.tree.leaves((transitions.decision, transitions.reward))
        return key, arrays, state, sum(jnp.sum(x, dtype=jnp.float32) for x in kept)

    state = eqx.filter_jit(start_rollout)(env, model, jax.random.key(1))
    return Subject(run, (jax.random.key(2), arrays, state, jnp.zeros(())), num_envs * num_steps)


def trained(num_envs: int, num_steps: int = 128, devices: int = 1) -> Subject:
    """One update of the training loop with the trainer's defaults, including metrics."""
    mesh = make_mesh(devices)
    env = HackMatrix(compact=True)
    config = PPO(num_envs=num_envs, num_steps=num_steps)
    model = player_centered_mlp(key=jax.random.key(0))
    state = place_state(Trainer(env, config, metrics=METRICS).init(model, jax.random.key(1)), mesh)
    setup = Trainer(env, config, metrics=METRICS, mesh=mesh)
    arrays, static = eqx.partition(state, eqx.is_array)

    def run(arrays: Any) -> Any:
        one, many = jnp.int32(1), jnp.int32(1_000_000)
        state = eqx.combine(arrays, static)
        return eqx.filter(setup.run_updates(state, one, many)[0], eqx.is_array)

    return Subject(run, arrays, config.batch_size)


def matrix_products(num_envs: int, num_steps: int = 128) -> Subject:
    """The matrix products of one update of the default network, and nothing else.

    There is a forward pass for each step of a rollout, and a forward and backward pass for each
    gradient step. No update can be faster on the same machine.
    """
    config = PPO(num_envs=num_envs, num_steps=num_steps)
    sizes = [(NUM_FEATURES, 256), (256, 256)]
    towers = [[jnp.ones(shape) / 256 for shape in (*sizes, (256, outputs))] for outputs in (28, 1)]
    rows = config.batch_size // config.scaling.num_minibatches

    def outputs(towers: Any, x: Array) -> Array:
        total = jnp.zeros(())
        for weights in towers:
            y = x
            for weight in weights:
                y = y @ weight
            total += y.sum()
        return total

    def forward(carry: Any, _: None) -> tuple[Any, None]:
        towers, acted, learned = carry
        return (towers, acted + 1e-9 * outputs(towers, acted), learned), None

    def both(carry: Any, _: None) -> tuple[Any, None]:
        towers, acted, learned = carry
        # The gradient is with respect to the weights alone, not the inputs.
        gradient = jax.grad(lambda towers: outputs(towers, learned))(towers)
        towers = jax.tree.map(lambda w, g: w - 1e-9 * g, towers, gradient)
        return (towers, acted, learned), None

    def run(carry: Any) -> Any:
        carry, _ = jax.lax.scan(forward, carry, None, length=num_steps)
        return jax.lax.scan(both, carry, None, length=config.gradient_steps)[0]

    start = (towers, jnp.ones((num_envs, NUM_FEATURES)), jnp.ones((rows, NUM_FEATURES)))
    return Subject(run, start, config.batch_size)


def spread(make: Callable[..., Subject], num_envs: int, devices: int, **steps: int) -> Subject:
    """Makes a subject that splits its environments over several devices."""
    mesh = make_mesh(devices)
    if mesh is None:
        return make(num_envs, **steps)
    one = make(num_envs // devices, **steps)

    def run(carry: Any) -> Any:
        carry = one.run(jax.tree.map(lambda x: x[0], carry))
        return jax.tree.map(lambda x: x[None], carry)

    start = jax.tree.map(lambda x: jnp.stack([x] * devices), one.start)
    start = jax.device_put(start, sharding(mesh, 0))
    return Subject(shard_over_envs(mesh, run, (0,), 0), start, one.steps * devices)


SUBJECTS: dict[str, Callable[..., Subject]] = {
    "environment": environment,
    "environment, flat observations": partial(environment, compact=False),
    "rollout": collected,
    "matrix products": matrix_products,
}


def subject(name: str, num_envs: int, devices: int, **steps: int) -> Subject:
    """Makes the subject with this name on ``devices`` devices."""
    if name == "training":  # Its devices share one gradient.
        return trained(num_envs, devices=devices, **steps)
    return spread(SUBJECTS[name], num_envs, devices, **steps)
