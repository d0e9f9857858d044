"""PPO: its settings, and one update."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, Scalar

from ppo_mask.acting import RewardScaler, RolloutState, Transition, next_values
from ppo_mask.errors import FieldError, WrongPart, naming
from ppo_mask.jax_tools import ArrayTree, number_settings
from ppo_mask.jax_tools._parts import as_floats
from ppo_mask.networks import Model, add_normalization, to_bfloat16, trainable, update_statistics
from ppo_mask.networks._model import PRECISIONS
from ppo_mask.ppo._gae import estimate_advantages
from ppo_mask.ppo._loss import ppo_loss
from ppo_mask.training import (
    AbstractAlgorithm,
    At,
    Batch,
    check_minibatches,
    gather_rows,
    make_batch,
    mean_over_steps,
    rows_per_env,
    shuffle_rows,
    static_setting,
    take_gradient_steps,
    traced_setting,
)
from ppo_mask.training._gradients import with_own
from ppo_mask.training._rules import MAX_COUNT

REFERENCE_BATCH = 32_768
"""Environment steps per update of the default settings, with 4 minibatches and 4 epochs."""

_REFERENCE_MINIBATCHES, _MAX_MINIBATCHES = 4, 64
_REFERENCE_EPOCHS, _MIN_EPOCHS = 4, 2

_METRICS = (
    "total_loss",
    "pg_loss",
    "vf_loss",
    "entropy",
    "approx_kl",
    "clip_frac",
    "explained_variance",
    "grad_norm",
    "lr",
    "gradient_steps",
)

Optimizer: TypeAlias = (
    optax.GradientTransformation | Callable[["PPO"], optax.GradientTransformation]
)
"""An optimizer of optax, or a function that makes one from the algorithm."""


class Scaling(NamedTuple):
    """The numbers of minibatches and epochs of an update.

    Attributes:
        num_minibatches: parts into which the batch is split.
        update_epochs: passes over the batch.
    """

    num_minibatches: int
    update_epochs: int


@final
class PPO(AbstractAlgorithm):
    """Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347) with action masks.

    Each update acts for ``num_steps`` steps, estimates advantages, and takes ``update_epochs`` ×
    ``num_minibatches`` gradient steps.

    Integers, booleans and text are static in the compiled program. Other settings are floats or
    scalar arrays: an algorithm made inside ``jax.vmap`` trains one agent per value. The learning
    rate may also be an optax schedule, a function of the number of gradient steps.

    The metrics of an update are means over its gradient steps, unless noted:

    - ``total_loss``: the loss whose gradient is taken.
    - ``pg_loss``: the clipped surrogate.
    - ``vf_loss``: half the mean squared error of the value.
    - ``entropy``: mean over the minibatch, in nats.
    - ``approx_kl``: estimate of KL(old policy || new policy): mean of (r - 1) - log r, with the
      probability ratio r. This estimate is unbiased and never negative
      (http://joschu.net/blog/kl-approx.html).
    - ``clip_frac``: share of the minibatch whose ratio is outside the clipping range.
    - ``explained_variance``: 1 - Var(return - value) / Var(return) over the batch: 1 is perfect, 0
      no better than a constant. It is also 0 if the returns are all equal.
    - ``grad_norm``: the gradient's global norm, before clipping.
    - ``lr``: the learning rate of the update's last gradient step, taken or not; not with an
      optimizer of your own.
    - ``gradient_steps``: number of gradient steps taken: fewer than planned if ``target_kl`` ended
      the update early.

    Attributes:
        num_envs: number of environments in the batch.
        num_steps: steps per environment between two updates.
        learning_rate: Adam's step size (if annealed, the first one), or a schedule. The schedule's
            argument is the number of the gradient step, counted from 0 over the whole run, as if
            all updates had as many steps; steps that ``target_kl`` skips are
            counted, too.
        anneal_lr: whether the step size falls linearly to 0 over the run, gradient step by step.
        gamma: discount per step.
        gae_lambda: decay of the advantage estimate; 1 is Monte Carlo, 0 one-step.
        num_minibatches: gradient steps per pass over the batch; divides ``batch_size``. None
            chooses the number by the batch's size; see ``scaling``.
        gradient_accumulation: number of equal parts of a minibatch; divides the minibatch's size.
            The parts' gradients are computed one after another, to save memory. The minibatch's
            gradient stays the same.
        update_epochs: passes over the batch; None chooses the number by the batch's size.
        clip_eps: how far the probability ratio may move from 1 before it is clipped.
        clip_value: whether to clip the value loss, too, where the value moves by more than
            ``clip_eps`` in an update.
        vf_coef: weight of the value loss.
        ent_coef: weight of the entropy bonus.
        max_grad_norm: the gradient's largest global norm; larger gradients are scaled down.
        target_kl: if given, an update stops before the first gradient step whose minibatch has an
            ``approx_kl`` above this number, and skips all later gradient steps.
        precision: "float32" or "bfloat16", for the network's matrix products
            (:class:`ppo_mask.networks.Model`); all else is float32.
        normalize_observations: whether to normalize the observation's floats to mean 0 and variance
            1 (:class:`ppo_mask.networks.Model`).
        normalize_rewards: whether to divide rewards by the discounted return's standard deviation
            (:class:`ppo_mask.acting.RewardScaler`). The value function then learns the scaled
            returns; logged rewards and returns are not scaled.
        optimizer: any optax transformation, with its own step sizes, clipping and schedules; or a
            function that makes one from this algorithm, such as ``lambda ppo:
            optax.adamw(ppo.learning_rate)``. ``learning_rate``, ``anneal_lr`` and ``max_grad_norm``
            are then not used. None means clipping by the global norm, then Adam.
        loss: a function with the arguments and results of :func:`ppo_loss`. The loss may return
            more metrics, which are logged as ``train/<name>``.
        advantages: a function with the arguments and result of :func:`estimate_advantages`.

    Raises:
        FieldError: a value is invalid; the message names the field. A FieldError is a ValueError.

    Example:
        >>> import ppo_mask as pm
        >>> ppo = pm.PPO(num_envs=8, num_steps=16, learning_rate=1e-3)
        >>> ppo.batch_size, ppo.gradient_steps
        (128, 16)
        >>> pm.PPO(gamma=2)
        Traceback (most recent call last):
        ppo_mask.errors.FieldError: gamma must be at most 1, got 2.0
        >>> pm.PPO(num_envs=2048).scaling
        Scaling(num_minibatches=32, update_epochs=2)
        >>> import optax
        >>> schedule = optax.cosine_decay_schedule(3e-3, decay_steps=100 * ppo.gradient_steps)
        >>> ppo = pm.PPO(num_envs=8, num_steps=16, learning_rate=schedule)
    """

    num_envs: int = static_setting(
        256, "environments side by side; 2048 and more on an accelerator", at_least=1
    )
    num_steps: int = static_setting(
        128,
        "steps of each environment per update; by default fewer with a large --num-envs",
        at_least=1,
    )
    learning_rate: float | Float[Array, ""] | optax.Schedule = traced_setting(
        2.5e-4, "learning rate", at_least=0, alias="lr", schedule=True
    )
    anneal_lr: bool = static_setting(
        False, "let the learning rate fall to 0 over the run", changeable=True
    )
    gamma: float | Float[Array, ""] = traced_setting(
        0.99, "discount per step", at_least=0, at_most=1
    )
    gae_lambda: float | Float[Array, ""] = traced_setting(
        0.95, "decay of the advantage trace", at_least=0, at_most=1
    )
    num_minibatches: int | None = static_setting(
        None,
        "parts of a batch, one gradient step each; none: by the batch's size",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    gradient_accumulation: int = static_setting(
        1,
        "parts of a minibatch, computed in turn; saves memory, changes no result",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    update_epochs: int | None = static_setting(
        None,
        "passes over a batch; none: by the batch's size",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    clip_eps: float | Float[Array, ""] = traced_setting(
        0.2, "how far the policy's ratio may move from 1", above=0, finite=False
    )
    clip_value: bool = static_setting(
        False, "clip the value's change too, with the same clip_eps", changeable=True
    )
    vf_coef: float | Float[Array, ""] = traced_setting(0.5, "weight of the value loss", at_least=0)
    ent_coef: float | Float[Array, ""] = traced_setting(
        0.01, "weight of the entropy bonus", at_least=0
    )
    max_grad_norm: float | Float[Array, ""] = traced_setting(
        0.5, "gradients are scaled down to this norm", above=0, finite=False
    )
    target_kl: float | Float[Array, ""] | None = traced_setting(
        None,
        "end an update's gradient steps before one whose minibatch has a larger approx_kl",
        above=0,
        finite=False,
    )
    precision: str = static_setting(
        "float32",
        "of the network's matrix products: float32, or bfloat16 for accelerators and CPUs with AMX",
        one_of=PRECISIONS,
    )
    normalize_observations: bool = static_setting(
        False, "normalize the observation's floats by their running mean and deviation"
    )
    normalize_rewards: bool = static_setting(
        False, "divide rewards by the running deviation of the discounted return"
    )

    optimizer: Optimizer | None = eqx.field(static=True, default=None)
    loss: Callable[..., Any] = eqx.field(static=True, default=ppo_loss)
    advantages: Callable[..., Any] = eqx.field(static=True, default=estimate_advantages)

    @property
    def scaling(self) -> Scaling:
        """The numbers of minibatches and epochs: as given, or chosen where they are None.

        If both numbers are None and the batch is at least twice :data:`REFERENCE_BATCH`, there are
        more minibatches, of about the default settings' size, and fewer epochs. Otherwise None
        becomes 4.
        """
        minibatches, epochs = self.num_minibatches, self.update_epochs
        factor = self.batch_size // REFERENCE_BATCH
        if factor > 1 and minibatches is None and epochs is None:
            most = min(_REFERENCE_MINIBATCHES * factor, _MAX_MINIBATCHES)
            parts, size = self.gradient_accumulation, self.batch_size
            fitting = (n for n in range(most, 0, -1) if size % (n * parts) == 0)
            # If nothing fits, __check_init__ names the fault.
            return Scaling(next(fitting, 1), max(_MIN_EPOCHS, _REFERENCE_EPOCHS // factor))
        return Scaling(
            _REFERENCE_MINIBATCHES if minibatches is None else minibatches,
            _REFERENCE_EPOCHS if epochs is None else epochs,
        )

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update."""
        return self.scaling.num_minibatches * self.scaling.update_epochs

    def check_settings(self) -> None:
        """Checks that the parts of a batch are of one size."""
        if self.anneal_lr and callable(self.learning_rate):
            raise FieldError(
                "anneal_lr", "needs a number as learning rate: a schedule anneals by itself"
            )
        is_made = isinstance(self.optimizer, optax.GradientTransformation)
        if not is_made and str(getattr(self.optimizer, "__module__", "")).startswith("optax."):
            raise FieldError("optimizer", "must be made first, such as optax.adam(1e-3)")
        self.check(None, 1)

    def check(self, model: Model | None, num_devices: int) -> None:
        """Checks that each device can have an equal share of every minibatch."""
        minibatches, parts = self.scaling.num_minibatches, self.gradient_accumulation
        check_minibatches(model, self.num_envs, self.num_steps, minibatches, parts, num_devices)

    def resolved(self) -> "PPO":
        """Returns PPO with the numbers of minibatches and epochs filled in."""
        return dataclasses.replace(self, **self.scaling._asdict())

    def facts(self) -> dict[str, str]:
        """Describes the batch."""
        minibatches, epochs = self.scaling
        parts = f"{minibatches} minibatches, {epochs} epochs"
        batch = f"{self.num_envs} envs x {self.num_steps} steps = {self.batch_size:,}"
        return {"batch": f"{batch}; {parts}"}

    def metric_names(self) -> tuple[str, ...] | None:
        """The names above, unless the loss is another."""
        if self.loss is not ppo_loss:
            return None
        return _METRICS if self.optimizer is None else tuple(x for x in _METRICS if x != "lr")

    def init(
        self, model: Model, rollout: RolloutState, key: Key[Array, ""]
    ) -> tuple[Model, "PPOState"]:
        """Gives the model the precision and normalization of the settings."""
        del key
        if self.precision == "bfloat16":
            model = to_bfloat16(model)
        if self.normalize_observations:
            model = add_normalization(model, rollout.observation)
        with naming("the optimizer"):
            weights, _ = trainable(model)
            opt_state = self._optimizer(weights).init(weights)
        scaler = RewardScaler(self.num_envs) if self.normalize_rewards else None
        return model, PPOState(opt_state, scaler)

    def learn(
        self,
        model: Model,
        own: "PPOState",
        before: RolloutState,
        transitions: Transition,
        last_value: Float[Array, " envs"],
        at: At,
    ) -> tuple[Model, "PPOState", dict[str, Scalar]]:
        """Estimates advantages, then takes the gradient steps."""
        scaler, advantage = self.estimate(own.reward_scaler, transitions, last_value)
        value = transitions.decision.value
        batch = make_batch(model, before, transitions, advantage, return_=advantage + value)
        units, (minibatches, epochs) = rows_per_env(model, self.num_steps), self.scaling
        shuffled = shuffle_rows(
            at.key,
            num_envs=self.num_envs,
            units=units,
            num_minibatches=minibatches,
            epochs=epochs,
            parts=self.gradient_accumulation,
            mesh=at.mesh,
        )
        rates = None if self.optimizer is not None else self._learning_rates(at)
        target: Any = self.target_kl

        def standardized(rows: Array) -> Array:
            return _standardized(gather_rows(batch.advantage, rows, at.mesh))

        def stop(metrics: dict[str, Array]) -> Array:
            if "approx_kl" not in metrics:
                raise WrongPart("target_kl needs a loss with the metric approx_kl")
            return metrics["approx_kl"] > target

        model, opt_state, metrics = take_gradient_steps(
            self._loss,
            self._optimizer(trainable(model)[0]),
            model,
            own.opt_state,
            batch,
            shuffled,
            beside=standardized,
            step_sizes=rates,
            stop=None if target is None else stop,
            mesh=at.mesh,
        )
        if self.normalize_observations:
            # Only now, so that gradient steps get the same inputs as the rollout.
            model = update_statistics(model, transitions.decision.observation)
        others = {"explained_variance": _explained_variance(batch.decision.value, batch.return_)}
        others |= {} if rates is None else {"lr": rates[-1]}
        return model, PPOState(opt_state, scaler), with_own(mean_over_steps(metrics), others)

    def estimate(
        self,
        scaler: RewardScaler | None,
        transitions: Transition,
        last_value: Float[Array, " envs"],
    ) -> tuple[RewardScaler | None, Float[Array, "steps envs"]]:
        """Estimates the advantages of a rollout.

        Args:
            scaler: scales the rewards; None if they are not normalized.
            transitions: the rollout, with axes [steps, envs, …].
            last_value: the values of the states in which the rollout stopped.

        Returns:
            The scaler, updated with this rollout, and the advantages.

        Raises:
            WrongPart: a custom estimator does not return an advantage for each step.
        """
        reward = transitions.reward
        if scaler is not None:
            scaler, reward = scaler.scale(reward, transitions.ended, self.gamma)
        with naming("the advantage estimator"):
            advantage = self.advantages(
                reward,
                transitions.decision.value,
                next_values(transitions, last_value),
                transitions.terminated,
                transitions.truncated,
                self.gamma,
                self.gae_lambda,
            )
        wanted = f"one number for each reward, of shape {list(reward.shape)}; it returned"
        wrong = f"the advantage estimator must return {wanted}"
        return scaler, as_floats(advantage, reward.shape, wrong).astype(jnp.float32)

    def _loss(self, model: Model, minibatch: tuple[Batch, Array]) -> Any:
        batch, advantage = minibatch
        return self.loss(model, dataclasses.replace(batch, advantage=advantage), self)

    def _optimizer(self, weights: ArrayTree) -> optax.GradientTransformation:
        """Returns the optimizer; by default clipping and Adam, without the learning rate."""
        if isinstance(self.optimizer, optax.GradientTransformation):
            return self.optimizer
        if self.optimizer is not None:
            return self.optimizer(self)
        adam = optax.chain(
            optax.clip_by_global_norm(self.max_grad_norm), optax.scale_by_adam(eps=1e-5)
        )
        # Of all weights as one vector: kernels of their own for each array take longer to compile,
        # and in small networks to start. Without any weights, there is no vector.
        return optax.flatten(adam) if jax.tree.leaves(weights) else adam

    def _learning_rates(self, at: At) -> Float[Array, " gradient_steps"]:
        """Returns each gradient step's learning rate in this update."""
        if callable(self.learning_rate):
            # The count stops at the largest int32, as optax's own counts do.
            most = MAX_COUNT // self.gradient_steps - 1
            first = jnp.minimum(at.update, most) * self.gradient_steps
            steps = first + jnp.arange(self.gradient_steps, dtype=jnp.int32)
            with naming("the learning rate's schedule"), number_settings():  # As optax needs it.
                rates = jax.vmap(self.learning_rate)(steps)
            wanted = "a schedule must give one number for each gradient step; for all, it gives"
            return as_floats(rates, steps.shape, wanted).astype(jnp.float32)
        if not self.anneal_lr:
            return jnp.full(self.gradient_steps, self.learning_rate, jnp.float32)
        part = jnp.arange(self.gradient_steps, dtype=jnp.float32) / self.gradient_steps
        updates = at.update.astype(jnp.float32) + part
        total = at.total_updates.astype(jnp.float32)
        return self.learning_rate * jnp.maximum(1 - updates / total, 0)


class PPOState(eqx.Module):
    """PPO's own state.

    Attributes:
        opt_state: the optimizer's state.
        reward_scaler: statistics of the rewards, if these are normalized.
    """

    opt_state: ArrayTree
    reward_scaler: RewardScaler | None


def _standardized(advantage: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    if advantage.size == 1:  # A single advantage, standardized, would be 0.
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def _explained_variance(
    value: Float[Array, "*batch"], return_: Float[Array, "*batch"]
) -> Float[Array, ""]:
    # One reduction for both. A reshape would gather the environments of all devices.
    axes = tuple(range(1, return_.ndim + 1))
    variance, unexplained = jnp.stack([return_, return_ - value]).var(axis=axes)
    return jnp.where(variance > 0, 1 - unexplained / jnp.where(variance > 0, variance, 1), 0)
