"""How large the compiled programs are, in operations: what makes them slow to compile is seen here.

Seconds differ from machine to machine; the number of operations that a program is traced to does
not. A budget that is broken is to be looked into, and raised only if what is gained is worth it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from hackmatrix import HackMatrix
from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import ConstantValue
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import Trainer


def operations(jaxpr: Any) -> int:
    """The operations of a program, those of its loops' and branches' bodies included."""
    return sum(1 + sum(map(operations, _inner(equation))) for equation in jaxpr.eqns)


def _inner(equation: Any) -> Iterator[Any]:
    for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
        value = getattr(value, "jaxpr", value)
        if hasattr(value, "eqns"):
            yield value


def size(function: Callable[..., Any], *arguments: Any) -> int:
    return operations(jax.make_jaxpr(function)(*arguments).jaxpr)


def game_step() -> int:
    env = VectorEnv(HackMatrix(), 64)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    return size(env.step, jax.random.key(0), state, jnp.zeros(64, jnp.int32))


def learner() -> int:
    env, config = ConstantValue(), PPO(num_envs=8, num_steps=8)
    model = MLPActorCritic(1, env.num_actions, 8, 2, key=jax.random.key(0))
    state = Trainer(env, config).init(model, jax.random.key(1))
    arrays, static = eqx.partition(state, eqx.is_array)

    def chunk(arrays: Any) -> Any:
        state = eqx.combine(arrays, static)
        one = jnp.int32(1)
        return eqx.filter(Trainer(env, config).run_updates(state, one, one)[0], eqx.is_array)

    return size(chunk, arrays)


@pytest.mark.parametrize(("program", "budget"), [(game_step, 9_900), (learner, 1_500)])
def test_programs_stay_small(program, budget):
    found = program()
    assert found <= budget, f"{found:,} operations, {budget:,} allowed"


def test_operations_of_loops_and_branches_are_counted():
    def nested(x):
        def body(carry, _):
            return jax.lax.cond(carry > 0, lambda c: c + 1.0, lambda c: c * 2.0 - 1.0, carry), None

        return jax.lax.scan(body, x, None, length=3)[0]

    # scan; in it `>`, a conversion and cond; in that 1 and 2.
    assert size(nested, jnp.float32(1)) == 7
