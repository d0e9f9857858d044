"""PPO's hyperparameters."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

PRECISIONS = ("float32", "bfloat16")


def _number(value: Any) -> Any:
    """Makes plain floats of Python's and numpy's numbers; leaves JAX arrays alone."""
    return float(value) if isinstance(value, (int, np.number)) else value


class PPOConfig(eqx.Module):
    """PPO's hyperparameters.

    Integers and booleans shape the compiled program. The others are plain floats, or scalar arrays:
    a config made inside ``jax.vmap`` trains one agent per value.

    Attributes:
        num_envs: environments side by side.
        num_steps: steps per environment between two updates.
        learning_rate: Adam's step size, at the start if annealed.
        anneal_lr: whether the step size falls linearly to 0 over the run, gradient step by step.
        gamma: discount per step.
        gae_lambda: decay of the advantage estimate; 1 is Monte Carlo, 0 one-step.
        num_minibatches: gradient steps per pass over the batch; divides ``batch_size``.
        gradient_accumulation: equal parts of a minibatch whose gradients are computed one after
            another, to save memory; divides a minibatch. The gradient is the same.
        update_epochs: passes over the batch.
        clip_eps: how far the probability ratio may move from 1 before it is clipped.
        clip_value: whether the value may move at most ``clip_eps`` per update too.
        vf_coef: weight of the value loss.
        ent_coef: weight of the entropy bonus.
        max_grad_norm: the gradient's largest global norm; longer ones are scaled down.
        target_kl: if given, an update's gradient steps end before the first one whose minibatch
            shows an ``approx_kl`` of more than this; parameters do not move after that.
        precision: "float32" or "bfloat16", for the network's matrix work
            (:class:`ppo_mask.networks.BFloat16ActorCritic`); all else is float32.
        normalize_observations: whether the network gets observations of mean 0 and variance 1
            (:class:`ppo_mask.networks.NormalizedActorCritic`).
        normalize_rewards: whether rewards are divided by the discounted return's deviation
            (:class:`ppo_mask.ppo.RewardScaler`). Values are then learned in that unit;
            rewards and returns on the log stay the environment's own.

    Raises:
        ValueError: a value that cannot work; the message names it.

    Example:
        >>> import ppo_mask as pm
        >>> config = pm.PPOConfig(num_envs=8, num_steps=16, learning_rate=1e-3)
        >>> config.batch_size, config.gradient_steps
        (128, 16)
        >>> pm.PPOConfig(gamma=2)
        Traceback (most recent call last):
        ValueError: gamma must be from 0 to 1, got 2.0
    """

    num_envs: int = eqx.field(static=True, default=256)
    num_steps: int = eqx.field(static=True, default=128)
    learning_rate: float | Float[Array, ""] = eqx.field(default=2.5e-4, converter=_number)
    anneal_lr: bool = eqx.field(static=True, default=False)
    gamma: float | Float[Array, ""] = eqx.field(default=0.99, converter=_number)
    gae_lambda: float | Float[Array, ""] = eqx.field(default=0.95, converter=_number)
    num_minibatches: int = eqx.field(static=True, default=4)
    gradient_accumulation: int = eqx.field(static=True, default=1)
    update_epochs: int = eqx.field(static=True, default=4)
    clip_eps: float | Float[Array, ""] = eqx.field(default=0.2, converter=_number)
    clip_value: bool = eqx.field(static=True, default=False)
    vf_coef: float | Float[Array, ""] = eqx.field(default=0.5, converter=_number)
    ent_coef: float | Float[Array, ""] = eqx.field(default=0.15, converter=_number)
    max_grad_norm: float | Float[Array, ""] = eqx.field(default=0.5, converter=_number)
    target_kl: float | Float[Array, ""] | None = eqx.field(default=None, converter=_number)
    precision: str = eqx.field(static=True, default="float32")
    normalize_observations: bool = eqx.field(static=True, default=False)
    normalize_rewards: bool = eqx.field(static=True, default=False)

    @property
    def batch_size(self) -> int:
        """Environment steps per update."""
        return self.num_envs * self.num_steps

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update."""
        return self.num_minibatches * self.update_epochs

    def __check_init__(self) -> None:
        counts = ("num_envs", "num_steps", "num_minibatches", "update_epochs")
        for name in (*counts, "gradient_accumulation"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.batch_size % self.num_minibatches:
            raise ValueError(
                f"num_minibatches = {self.num_minibatches} does not divide the batch of num_envs "
                f"× num_steps = {self.num_envs} × {self.num_steps} = {self.batch_size}"
            )
        minibatch = self.batch_size // self.num_minibatches
        if minibatch % self.gradient_accumulation:
            raise ValueError(
                f"gradient_accumulation = {self.gradient_accumulation} does not divide the "
                f"minibatch of {self.batch_size} / {self.num_minibatches} = {minibatch}"
            )
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(PRECISIONS)}, got {self.precision!r}")
        for name in ("gamma", "gae_lambda"):
            self._require(name, "from 0 to 1", lambda value: 0 <= value <= 1)
        for name in ("learning_rate", "vf_coef", "ent_coef"):
            self._require(name, "finite and not negative", lambda value: 0 <= value < float("inf"))
        optional = () if self.target_kl is None else ("target_kl",)
        for name in ("clip_eps", "max_grad_norm", *optional):
            self._require(name, "greater than 0", lambda value: value > 0)

    def _require(self, name: str, law: str, holds: Any) -> None:
        value = getattr(self, name)
        if isinstance(value, float):
            if not holds(value):
                raise ValueError(f"{name} must be {law}, got {value}")
        elif not eqx.is_array(value) or value.shape != ():
            raise ValueError(f"{name} must be a number or a scalar array, got {value!r}")
