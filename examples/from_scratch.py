"""PPO in one file, from the library's parts, in the order of execution.

Copy this file to try another loss or another optimizer, or read it to see what
:class:`ppo_mask.Trainer` does. T is the number of steps in a rollout, E the number of environments,
and A the number of actions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

import ppo_mask as pm
from ppo_mask.acting import RolloutState, bootstrap_values, collect, start_rollout
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import forward, trainable
from ppo_mask.ppo import estimate_advantages
from ppo_mask.training import Batch, gather_rows, shuffle_rows

config = pm.PPO(num_envs=64, num_steps=32, learning_rate=3e-3, ent_coef=0.01)
env = pm.envs.probes.MaskedLocks()
vector_env = pm.VectorEnv(env, config.num_envs)
optimizer = optax.chain(
    optax.clip_by_global_norm(config.max_grad_norm), optax.adam(config.learning_rate, eps=1e-5)
)


def loss(model: pm.Model, batch: Batch) -> Array:
    """PPO's loss of a minibatch, whose arrays have axes [rows, …]. Put your own loss here."""
    old = batch.decision
    distribution, value = forward(model, old.observation, old.action_mask)
    log_prob = jax.vmap(lambda d, a: d.log_prob(a))(distribution, old.action)
    entropy = jax.vmap(lambda d: d.entropy())(distribution).mean()

    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob - old.log_prob)
    clipped = jnp.clip(ratio, 1 - config.clip_eps, 1 + config.clip_eps)
    pg_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    vf_loss = 0.5 * jnp.square(value - batch.return_).mean()
    return pg_loss + config.vf_coef * vf_loss - config.ent_coef * entropy


@eqx.filter_jit
def update(
    model: pm.Model, opt_state: ArrayTree, rollout: RolloutState, key: Array
) -> tuple[pm.Model, ArrayTree, RolloutState, Array, Array]:
    """Runs one update; returns model, optimizer state, rollout state, key and mean reward."""
    key, act_key, shuffle_key = jax.random.split(key, 3)

    # Act: T steps in each of E environments. The policy's input includes the mask.
    rollout, transitions = collect(vector_env, model, rollout, act_key, config.num_steps)

    # Estimate how much better than expected each action was. At a truncation, bootstrap with the
    # value of the last observation: the next row of the rollout belongs to the next episode.
    value = transitions.decision.value
    next_value = jnp.concatenate([value[1:], bootstrap_values(model, rollout)[None]])
    advantage = estimate_advantages(
        transitions.reward,
        value,
        jnp.where(transitions.truncated, transitions.final_value, next_value),
        transitions.terminated,
        transitions.truncated,
        config.gamma,
        config.gae_lambda,
    )
    batch = Batch(transitions.decision, advantage, return_=advantage + value)  # axes [T, E, …]

    # Learn: several passes over the rollout, a gradient step for each minibatch of T·E rows.
    params, static = trainable(model)

    def gradient_step(carry: ArrayTree, rows: Array) -> tuple[ArrayTree, None]:
        params, opt_state = carry
        minibatch = gather_rows(batch, rows)
        gradient = jax.grad(lambda params: loss(eqx.combine(params, static), minibatch))(params)
        step, opt_state = optimizer.update(gradient, opt_state, params)
        return (optax.apply_updates(params, step), opt_state), None

    minibatches, epochs = config.scaling
    rows = shuffle_rows(
        shuffle_key,
        num_envs=config.num_envs,
        units=config.num_steps,
        num_minibatches=minibatches,
        epochs=epochs,
    )
    # Their shape is [gradient steps, 1, rows].
    (params, opt_state), _ = jax.lax.scan(gradient_step, (params, opt_state), rows[:, 0])
    return eqx.combine(params, static), opt_state, rollout, key, transitions.reward.mean()


def main(updates: int = 50) -> float:
    """Trains, and returns the mean return of the policy; the best possible return is 8."""
    model_key, rollout_key, eval_key, key = jax.random.split(jax.random.key(0), 4)
    model = pm.network_for(env, "mlp", hidden_dim=32, key=model_key)
    opt_state = optimizer.init(trainable(model)[0])
    rollout = start_rollout(vector_env, model, rollout_key)
    for number in range(1, updates + 1):
        model, opt_state, rollout, key, reward = update(model, opt_state, rollout, key)
        if number % 10 == 0:
            print(f"update {number}: mean reward per step {reward:.2f}")
    mean_return = pm.evaluate(model, env, eval_key, num_episodes=64).mean_return
    print(f"mean return {mean_return:.2f}")
    return mean_return


if __name__ == "__main__":
    main()
