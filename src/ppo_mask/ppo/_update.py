"""One update of proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, Real, Scalar

from ppo_mask.devices.sharding import mean_over_devices, shard_over_envs
from ppo_mask.envs import VectorEnv
from ppo_mask.jax_tools import ArrayTree, mean_over_parts, number_settings, scan_until
from ppo_mask.networks import (
    AbstractActorCritic,
    Memory,
    add_normalization,
    is_recurrent,
    split_features,
    to_bfloat16,
    trainable,
    update_statistics,
)
from ppo_mask.ppo._config import PPOConfig
from ppo_mask.ppo._gae import estimate_advantages
from ppo_mask.ppo._loss import Batch, ppo_loss, vmap_axes
from ppo_mask.ppo._minibatches import cache_sized_parts, check_devices, gather_rows, shuffle_rows
from ppo_mask.ppo._own_parts import WrongPart, checked_advantage, checked_loss
from ppo_mask.ppo._reward_scaler import RewardScaler
from ppo_mask.ppo._rollout import RolloutState, Transition, bootstrap_values, collect


class Algorithm(eqx.Module):
    """The replaceable parts of PPO; by default, PPO as published.

    Attributes:
        optimizer: any optax transformation, with its own step sizes, clipping and schedules. The
            config's ``learning_rate``, ``anneal_lr`` and ``max_grad_norm`` are then not used, and
            ``train/lr`` is not logged. None means clipping by the global norm, then Adam.
        loss: a function with the arguments and results of :func:`ppo_loss`. The loss may return
            more metrics, which are logged as ``train/<name>``.
        advantage_estimator: a function with the arguments and result of
            :func:`estimate_advantages`.
    """

    optimizer: optax.GradientTransformation | None = eqx.field(static=True, default=None)
    loss: Callable[..., Any] = eqx.field(static=True, default=ppo_loss)
    advantage_estimator: Callable[..., Any] = eqx.field(static=True, default=estimate_advantages)

    def make_optimizer(self, config: PPOConfig) -> optax.GradientTransformation:
        """Returns the optimizer; by default clipping and Adam, without the learning rate."""
        if self.optimizer is not None:
            return self.optimizer
        return optax.chain(
            optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
        )


class LearnerState(eqx.Module):
    """The state between two updates.

    Attributes:
        model: the policy and value function.
        opt_state: the optimizer's state.
        rollout: the environments' state after the last rollout.
        key: the random key of the next updates.
        num_updates: updates done.
        reward_scaler: statistics of the rewards, if these are normalized.
    """

    model: AbstractActorCritic
    opt_state: ArrayTree
    rollout: RolloutState
    key: Key[Array, ""]
    num_updates: Int[Array, "*seeds"]
    reward_scaler: RewardScaler | None


class UpdateDiagnostics(eqx.Module):
    """Metrics of an update; one number per gradient step unless noted, 0 for steps not taken.

    Attributes:
        total_loss: the loss whose gradient is taken.
        pg_loss: the clipped surrogate.
        vf_loss: half the mean squared error of the value.
        entropy: mean over the minibatch, in nats.
        approx_kl: estimate of KL(old policy || new policy): mean of (r - 1) - log r, with the
            probability ratio r. This estimate is unbiased and never negative
            (http://joschu.net/blog/kl-approx.html).
        clip_frac: share of the minibatch whose ratio is outside the clipping range.
        explained_variance: 1 - Var(return - value) / Var(return) over the batch, a single number
            per update: 1 is perfect, 0 no better than a constant. It is also 0 if the returns are
            all equal.
        grad_norm: the gradient's global norm, before clipping.
        lr: the learning rate, also of the steps not taken; None with an optimizer of your own.
        gradient_steps: number of gradient steps taken, a single number per update: fewer than
            planned if ``target_kl`` ended the update early.
        extra: additional metrics of a custom loss, by name.
    """

    total_loss: Float[Array, "*steps"]
    pg_loss: Float[Array, "*steps"]
    vf_loss: Float[Array, "*steps"]
    entropy: Float[Array, "*steps"]
    approx_kl: Float[Array, "*steps"]
    clip_frac: Float[Array, "*steps"]
    explained_variance: Float[Array, ""]
    grad_norm: Float[Array, "*steps"]
    lr: Float[Array, "*steps"] | None
    gradient_steps: Float[Array, ""]
    extra: dict[str, Float[Array, "*steps"]] = eqx.field(default_factory=dict)

    @classmethod
    def zeros(cls) -> "UpdateDiagnostics":
        """Returns a scalar zero for each metric of PPO as published."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "extra"]
        numbers: dict[str, Any] = {name: jnp.float32(0) for name in names}
        return cls(**numbers)

    @property
    def named(self) -> dict[str, Any]:
        """All metrics by name, except those that are None."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        metrics = fields | fields.pop("extra")
        return {name: value for name, value in metrics.items() if value is not None}


_LOSSES = ("total_loss", "pg_loss", "vf_loss", "entropy", "approx_kl", "clip_frac")
"""Metrics that every loss must return."""


def init_learner(
    model: AbstractActorCritic,
    rollout: RolloutState,
    config: PPOConfig,
    key: Key[Array, ""],
    algorithm: Algorithm | None = None,
) -> LearnerState:
    """Makes the state before the first update.

    Args:
        model: the model to train. The result's model has the config's precision and normalization.
        rollout: the environments' state at the start.
        config: hyperparameters.
        key: the random key of the updates.
        algorithm: replaced parts of PPO, if any.

    Raises:
        ValueError: the model is recurrent, and the environments cannot be divided among
            minibatches.
    """
    check_devices(config, model, 1)
    if config.precision == "bfloat16":
        model = to_bfloat16(model)
    if config.normalize_observations:
        model = add_normalization(model, rollout.observation)
    tx = (algorithm or Algorithm()).make_optimizer(config)
    opt_state = tx.init(trainable(model)[0])
    scaler = RewardScaler(config.num_envs) if config.normalize_rewards else None
    return LearnerState(model, opt_state, rollout, key, jnp.zeros((), jnp.int32), scaler)


def update(
    vector_env: VectorEnv[Any],
    config: PPOConfig,
    state: LearnerState,
    total_updates: Real[Array, ""],
    mesh: Mesh | None = None,
    algorithm: Algorithm | None = None,
) -> tuple[LearnerState, Transition, UpdateDiagnostics]:
    """Makes one update of PPO: act, estimate advantages, learn.

    Args:
        vector_env: the ``config.num_envs`` environments.
        config: hyperparameters.
        state: the state after the last update.
        total_updates: updates of the whole run, after which an annealed learning rate is 0.
        mesh: the devices that the environments are split over, if there are several.
        algorithm: replaced parts of PPO, if any.

    Returns:
        The next state; the rollout, with axes [steps, envs, …]; and the update's metrics.
    """
    algorithm = algorithm or Algorithm()
    key, rollout_key, epochs_key = jax.random.split(state.key, 3)

    rollout, transitions = collect(
        vector_env, state.model, state.rollout, rollout_key, config.num_steps, mesh
    )
    last_value = bootstrap_values(state.model, rollout, mesh)
    scaler, batch = estimate(config, state, transitions, last_value, algorithm)
    model, opt_state, diagnostics = learn(
        config, state, batch, epochs_key, total_updates, mesh, algorithm
    )
    if config.normalize_observations:
        # Only now, so that gradient steps get the same inputs as the rollout.
        model = update_statistics(model, transitions.decision.observation)
    state = LearnerState(model, opt_state, rollout, key, state.num_updates + 1, scaler)
    return state, transitions, diagnostics


def estimate(
    config: PPOConfig,
    state: LearnerState,
    transitions: Transition,
    last_value: Float[Array, " envs"],
    algorithm: Algorithm,
) -> tuple[RewardScaler | None, Batch]:
    """Estimates the advantages of a rollout, and makes the batch to learn from.

    Args:
        config: hyperparameters.
        state: the state before the rollout.
        transitions: the rollout, with axes [steps, envs, …].
        last_value: from :func:`bootstrap_values`, for the states in which the rollout stopped.
        algorithm: the parts of PPO; only the advantage estimator is used.

    Returns:
        The reward scaler, updated with this rollout (None if rewards are not normalized); and the
        batch.

    Raises:
        ValueError: a custom estimator does not return an advantage for each step.
    """
    value = transitions.decision.value
    next_value = jnp.concatenate([value[1:], last_value[None]])
    scaler, reward = state.reward_scaler, transitions.reward
    if scaler is not None:
        scaler, reward = scaler.scale(reward, transitions.ended, config.gamma)
    advantage = algorithm.advantage_estimator(
        reward,
        value,
        jnp.where(transitions.truncated, transitions.final_value, next_value),
        transitions.terminated,
        transitions.truncated,
        config.gamma,
        config.gae_lambda,
    )
    advantage = checked_advantage(advantage, reward)
    batch = Batch(transitions.decision, advantage, return_=advantage + value)
    if is_recurrent(state.model):
        batch = jax.tree.map(lambda x: x.swapaxes(0, 1), batch)
        memory = Memory(state.rollout.hidden, transitions.ended.swapaxes(0, 1))
        batch = dataclasses.replace(batch, memory=memory)
        batch = jax.tree.map(lambda x: x[None], batch)
    return scaler, batch


def learn(
    config: PPOConfig,
    state: LearnerState,
    batch: Batch,
    key: Key[Array, ""],
    total_updates: Real[Array, ""],
    mesh: Mesh | None,
    algorithm: Algorithm,
) -> tuple[AbstractActorCritic, ArrayTree, UpdateDiagnostics]:
    """Takes the gradient steps of an update: ``update_epochs`` × ``num_minibatches``.

    Minibatches are gathered, and their features unpacked, one at a time, because the rollout may be
    gigabytes.

    Args:
        config: hyperparameters.
        state: the state before the rollout.
        batch: the rollout, from :func:`estimate`.
        key: the random key of the shuffling.
        total_updates: updates of the whole run, after which an annealed learning rate is 0.
        mesh: the devices that the environments are split over, if there are several.
        algorithm: the parts of PPO; only the loss and the optimizer are used.

    Returns:
        The model, the optimizer's state, and the update's metrics.

    Raises:
        ValueError: a custom loss does not return a loss and the required metrics.
    """
    tx = algorithm.make_optimizer(config)
    params, static = trainable(state.model)

    # A function for shard_map must not close over traced values, so `arrays` is its argument.
    arrays, rest = eqx.partition((static, config), eqx.is_array)

    def gradient(
        params: ArrayTree, arrays: ArrayTree, batch: Batch, rows: Array, advantage: Array
    ) -> ArrayTree:
        static, config = eqx.combine(arrays, rest)

        def loss_of_params(params: ArrayTree, batch: Batch) -> tuple[Scalar, dict[str, Scalar]]:
            _, unpack, network = split_features(eqx.combine(params, static))
            decision = batch.decision
            inputs = vmap_axes(unpack, decision.log_prob.ndim)(decision.observation)
            decision = dataclasses.replace(decision, observation=inputs)
            batch = dataclasses.replace(batch, decision=decision)
            return checked_loss(algorithm.loss(network, batch, config))

        def of_part(part: tuple[Array, Array]) -> ArrayTree:
            rows, advantage = part
            minibatch = dataclasses.replace(gather_rows(batch, rows), advantage=advantage)
            return jax.grad(loss_of_params, has_aux=True)(params, minibatch)

        return mean_over_devices(
            mesh, mean_over_parts(of_part, cache_sized_parts((rows, advantage), mesh))
        )

    @jax.named_scope("gradient_step")  # Its name in profiles.
    def gradient_step(carry: ArrayTree, step: tuple[Array, Array]) -> tuple[ArrayTree, ArrayTree]:
        params, opt_state = carry
        rows, lr = step
        advantage = _standardized(gather_rows(batch.advantage, rows, mesh))
        on_devices = shard_over_envs(mesh, gradient, (None, None, 1, 1, 1), None)
        grad, losses = on_devices(params, arrays, batch, rows, advantage)
        with number_settings():  # Optax relies on JAX's defaults.
            direction, opt_state = tx.update(grad, opt_state, params)
        if algorithm.optimizer is None:
            params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
        else:
            with number_settings():
                params = optax.apply_updates(params, direction)
        return (params, opt_state), (losses, optax.tree.norm(grad))

    lrs = _learning_rates(config, state.num_updates, total_updates)
    (params, opt_state), (losses, grad_norm), steps_taken = scan_until(
        None if config.target_kl is None else lambda out: out[0]["approx_kl"] > config.target_kl,
        gradient_step,
        (params, state.opt_state),
        (shuffle_rows(config, state.model, key, mesh), lrs),
    )
    diagnostics = _diagnostics(
        losses,
        explained_variance=_explained_variance(batch.decision.value, batch.return_),
        grad_norm=grad_norm,
        lr=lrs if algorithm.optimizer is None else None,
        gradient_steps=steps_taken.astype(jnp.float32),
    )
    return eqx.combine(params, static), opt_state, diagnostics


def _diagnostics(losses: dict[str, Array], **others: Any) -> UpdateDiagnostics:
    missing = [name for name in _LOSSES if name not in losses]
    if missing:
        raise WrongPart(
            f"the loss must return the metrics {', '.join(_LOSSES)}; {missing[0]} is missing"
        )
    own = {name: losses[name] for name in _LOSSES}
    extra = {name: value for name, value in losses.items() if name not in own}
    return UpdateDiagnostics(**own, **others, extra=extra)


def _standardized(advantage: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    if advantage.size == 1:  # A single advantage, standardized, would be 0.
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def _learning_rates(
    config: PPOConfig, num_updates: Int[Array, ""], total_updates: Real[Array, ""]
) -> Float[Array, " gradient_steps"]:
    """Returns each gradient step's learning rate in update ``num_updates`` (counted from 0)."""
    if callable(config.learning_rate):
        # The count stops at the largest int32, as optax's own counts do.
        most = (2**31 - 1) // config.gradient_steps - 1
        first = jnp.minimum(num_updates, most) * config.gradient_steps
        steps = first + jnp.arange(config.gradient_steps, dtype=jnp.int32)
        with number_settings():  # Optax relies on JAX's defaults.
            rates: Any = jax.vmap(config.learning_rate)(steps)
        return rates.astype(jnp.float32)
    if not config.anneal_lr:
        return jnp.full(config.gradient_steps, config.learning_rate, jnp.float32)
    part = jnp.arange(config.gradient_steps, dtype=jnp.float32) / config.gradient_steps
    updates = num_updates.astype(jnp.float32) + part
    return config.learning_rate * jnp.maximum(1 - updates / total_updates.astype(jnp.float32), 0)


def _explained_variance(
    value: Float[Array, "*batch"], return_: Float[Array, "*batch"]
) -> Float[Array, ""]:
    # One reduction for both. A reshape would gather the environments of all devices.
    axes = tuple(range(1, return_.ndim + 1))
    variance, unexplained = jnp.stack([return_, return_ - value]).var(axis=axes)
    return jnp.where(variance > 0, 1 - unexplained / jnp.where(variance > 0, variance, 1), 0)
