"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347), in order of events."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, Scalar

from ppo_mask.devices.sharding import mean_over_devices, on_each
from ppo_mask.envs import VectorEnv
from ppo_mask.jax_tools import ArrayTree, mean_over_parts, scan_until
from ppo_mask.networks import (
    AbstractActorCritic,
    Memory,
    features_apart,
    in_bfloat16,
    is_recurrent,
    normalized,
    observe,
    partition,
)
from ppo_mask.ppo._config import PPOConfig
from ppo_mask.ppo._gae import generalized_advantages
from ppo_mask.ppo._loss import Batch, loss, vmap_axes
from ppo_mask.ppo._minibatches import of_rows, shuffled, small_parts, take
from ppo_mask.ppo._reward_scaler import RewardScaler
from ppo_mask.ppo._rollout import RolloutState, Transition, collect, values


class LearnerState(eqx.Module):
    """All that one update hands to the next.

    Attributes:
        model: what is trained.
        opt_state: the optimiser's.
        rollout: where the environments stand.
        key: for the updates to come.
        num_updates: updates done.
        reward_scaler: with the statistics of the rewards, if these are normalised.
    """

    model: AbstractActorCritic
    opt_state: ArrayTree
    rollout: RolloutState
    key: Key[Array, ""]
    num_updates: Int[Array, ""]
    reward_scaler: RewardScaler | None


class UpdateDiagnostics(eqx.Module):
    """How an update went; one number per gradient step unless noted, 0 for steps not taken.

    Attributes:
        total_loss: what the gradient is of.
        pg_loss: the clipped surrogate.
        vf_loss: half the mean squared error of the value.
        entropy: mean over the minibatch, nats.
        approx_kl: estimate of KL(old policy || new policy): mean of (r - 1) - log r, which is
            unbiased and never negative (http://joschu.net/blog/kl-approx.html).
        clip_frac: share of the minibatch whose ratio is outside the clipping range.
        explained_variance: 1 - Var(return - value) / Var(return) over the batch, a single number
            per update: 1 is perfect, 0 no better than a constant. 0 if the returns are all equal.
        grad_norm: global norm before clipping.
        lr: step size, also of the steps not taken.
        gradient_steps: how many were taken, a single number: fewer than planned where
            ``target_kl`` stopped them.
    """

    total_loss: Float[Array, "*steps"]
    pg_loss: Float[Array, "*steps"]
    vf_loss: Float[Array, "*steps"]
    entropy: Float[Array, "*steps"]
    approx_kl: Float[Array, "*steps"]
    clip_frac: Float[Array, "*steps"]
    explained_variance: Float[Array, ""]
    grad_norm: Float[Array, "*steps"]
    lr: Float[Array, "*steps"]
    gradient_steps: Float[Array, ""]


def optimizer(config: PPOConfig) -> optax.GradientTransformation:
    """Global-norm clipping, then Adam; the step size is applied by :func:`update`."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
    )


def init_learner(
    model: AbstractActorCritic, rollout: RolloutState, config: PPOConfig, key: Key[Array, ""]
) -> LearnerState:
    """A learner that has learned nothing yet.

    Its model is the one given, with what the config asks for put around it.

    Raises:
        ValueError: the model is recurrent, and the environments cannot be dealt out to minibatches.
    """
    of_rows(config, model)
    if config.precision == "bfloat16":
        model = in_bfloat16(model)
    if config.normalize_observations:
        model = normalized(model, rollout.observation)
    opt_state = optimizer(config).init(partition(model)[0])
    scaler = RewardScaler(config.num_envs) if config.normalize_rewards else None
    return LearnerState(model, opt_state, rollout, key, jnp.zeros((), jnp.int32), scaler)


def update(
    vector_env: VectorEnv[Any],
    config: PPOConfig,
    state: LearnerState,
    total_updates: Int[Array, ""],
    mesh: Mesh | None = None,
) -> tuple[LearnerState, Transition, UpdateDiagnostics]:
    """One update of PPO: act, judge what was done, learn from it.

    Args:
        vector_env: the environments, ``config.num_envs`` of them.
        config: hyperparameters.
        state: where the last update left off.
        total_updates: of the whole run; where an annealed learning rate reaches 0.
        mesh: of the devices that the environments are split over, if there are several.
    """
    key, rollout_key, epochs_key = jax.random.split(state.key, 3)

    # Act.
    rollout, transitions = collect(
        vector_env, state.model, state.rollout, rollout_key, config.num_steps, mesh
    )

    # Judge.
    last_value = values(state.model, rollout, mesh)
    following = jnp.concatenate([transitions.value[1:], last_value[None]])
    scaler, reward = state.reward_scaler, transitions.reward
    if scaler is not None:
        scaler, reward = scaler.scale(reward, transitions.ended, config.gamma)
    advantage = generalized_advantages(
        reward,
        transitions.value,
        jnp.where(transitions.truncated, transitions.final_value, following),
        transitions.terminated,
        transitions.truncated,
        config.gamma,
        config.gae_lambda,
    )
    batch = Batch(
        observation=transitions.observation,
        action_mask=transitions.action_mask,
        action=transitions.action,
        log_prob=transitions.log_prob,
        value=transitions.value,
        advantage=advantage,
        return_=advantage + transitions.value,
    )
    if is_recurrent(state.model):
        batch = jax.tree.map(lambda x: x.swapaxes(0, 1), batch)
        memory = Memory(state.rollout.hidden, transitions.ended.swapaxes(0, 1))
        batch = dataclasses.replace(batch, memory=memory)
        batch = jax.tree.map(lambda x: x[None], batch)

    # Learn. Minibatches are gathered and unpacked one by one: the rollout may be gigabytes.
    tx = optimizer(config)
    params, static = partition(state.model)

    # What may be traced is an argument to what each device runs: its own rows, one sum at the end.
    arrays, rest = eqx.partition((static, config), eqx.is_array)

    def gradient(
        params: ArrayTree, arrays: ArrayTree, batch: Batch, rows: Array, advantage: Array
    ) -> ArrayTree:
        static, config = eqx.combine(arrays, rest)

        def loss_of_params(params: ArrayTree, batch: Batch) -> tuple[Scalar, dict[str, Scalar]]:
            _, unpacked, network = features_apart(eqx.combine(params, static))
            seen = vmap_axes(unpacked, batch.action.ndim)(batch.observation)
            return loss(network, dataclasses.replace(batch, observation=seen), config)

        def of_part(part: tuple[Array, Array]) -> ArrayTree:
            rows, advantage = part
            minibatch = dataclasses.replace(take(batch, rows), advantage=advantage)
            return jax.grad(loss_of_params, has_aux=True)(params, minibatch)

        return mean_over_devices(mesh, mean_over_parts(of_part, small_parts((rows, advantage))))

    def gradient_step(carry: ArrayTree, step: tuple[Array, Array]) -> tuple[ArrayTree, ArrayTree]:
        params, opt_state = carry
        rows, lr = step
        advantage = _standardized(take(batch.advantage, rows, mesh))
        on_devices = on_each(mesh, gradient, (None, None, 1, 1, 1), None)
        grad, diagnostics = on_devices(params, arrays, batch, rows, advantage)
        direction, opt_state = tx.update(grad, opt_state, params)
        params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
        return (params, opt_state), (diagnostics, optax.tree.norm(grad))

    lrs = _learning_rates(config, state.num_updates, total_updates)
    (params, opt_state), (losses, grad_norm), steps_taken = scan_until(
        None if config.target_kl is None else lambda out: out[0]["approx_kl"] > config.target_kl,
        gradient_step,
        (params, state.opt_state),
        (shuffled(of_rows(config, state.model), epochs_key, mesh), lrs),
    )

    diagnostics = UpdateDiagnostics(
        **losses,
        explained_variance=_explained_variance(batch.value, batch.return_),
        grad_norm=grad_norm,
        lr=lrs,
        gradient_steps=steps_taken.astype(jnp.float32),
    )
    model = eqx.combine(params, static)
    if config.normalize_observations:
        # Only now: what is learned from must look as it did when it was acted on.
        model = observe(model, transitions.observation)
    state = LearnerState(model, opt_state, rollout, key, state.num_updates + 1, scaler)
    return state, transitions, diagnostics


def _standardized(advantage: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def _learning_rates(
    config: PPOConfig, num_updates: Int[Array, ""], total_updates: Int[Array, ""]
) -> Float[Array, " gradient_steps"]:
    """The step size of each gradient step of the update that follows ``num_updates`` others."""
    if not config.anneal_lr:
        return jnp.full(config.gradient_steps, config.learning_rate, jnp.float32)
    updates = num_updates + jnp.arange(config.gradient_steps) / config.gradient_steps
    return config.learning_rate * jnp.maximum(1 - updates / total_updates, 0)


def _explained_variance(
    value: Float[Array, "*batch"], return_: Float[Array, "*batch"]
) -> Float[Array, ""]:
    variance = return_.var()
    unexplained = (return_ - value).var() / jnp.where(variance > 0, variance, 1)
    return jnp.where(variance > 0, 1 - unexplained, 0)
