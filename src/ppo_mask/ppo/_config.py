"""PPO's hyperparameters, and the rules for their values."""

import dataclasses
import math
from typing import Any, NamedTuple, SupportsIndex, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ppo_mask.errors import FieldError, RunError, check_at_least
from ppo_mask.jax_tools import number_settings, python_scalar

PRECISIONS = ("float32", "bfloat16")

MAX_COUNT = 2**31 - 1
"""The largest int32: the most updates of a run, and the most steps between two log lines."""

REFERENCE_BATCH = 32_768
"""Environment steps per update of the default settings, with 4 minibatches and 4 epochs."""

_REFERENCE_MINIBATCHES, _MAX_MINIBATCHES = 4, 64
_REFERENCE_EPOCHS, _MIN_EPOCHS = 4, 2

RULES = "ppo_mask.rules"
"""The key of a field's :class:`Rules` in the dataclass field's metadata."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The purpose of a setting, and its allowed values.

    Attributes:
        help: one line for a command line's ``--help``.
        at_least: smallest value allowed.
        above: the value must be greater than this.
        at_most: largest value allowed.
        finite: whether infinity is refused.
        one_of: the allowed texts, or the name of a field in the same group whose value lists these
            texts; empty if any text is allowed.
        alias: a second name; empty for none.
        changeable: whether a resumed run may change the value.
        phased: whether the value may change from phase to phase of a run; the compiled program then
            gets the value as an array.
        stored: whether a run's folder stores the value. Settings that name the run, or apply to
            only one start of the run, are not stored.
        is_path: whether the text may be a path. The path is made absolute when the setting is read;
            a single word that is not the name of a file stays as it is.
        bare: the setting's value if its flag is given without a value; None if the flag needs a
            value.
    """

    help: str
    at_least: int | float | None = None
    above: int | float | None = None
    at_most: int | float | None = None
    finite: bool = True
    one_of: tuple[str, ...] | str = ()
    alias: str = ""
    changeable: bool = False
    phased: bool = False
    stored: bool = True
    is_path: bool = False
    bare: int | str | None = None

    @property
    def limits(self) -> str:
        """All limits in words, such as "at least 0, at most 1"; empty if there are none."""
        named = {"at least": self.at_least, "more than": self.above, "at most": self.at_most}
        return ", ".join(f"{words} {limit}" for words, limit in named.items() if limit is not None)

    def violation(self, value: int | float) -> str:
        """Finds the limit that a number breaks.

        Returns:
            What the number must be, such as "at least 1"; empty if the number breaks no limit.
        """
        # Not for an int: an int may be too large for a float.
        if isinstance(value, float) and (math.isnan(value) or (self.finite and math.isinf(value))):
            return "a finite number"
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least}"
        if self.above is not None and value <= self.above:
            return f"more than {self.above}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most}"
        return ""


class Scaling(NamedTuple):
    """The numbers of minibatches and epochs of an update.

    Attributes:
        num_minibatches: parts into which the batch is split.
        update_epochs: passes over the batch.
    """

    num_minibatches: int
    update_epochs: int


def check_divides(field: str, parts: int, what: str, whole: int, times: str = "") -> None:
    """Checks that a number divides another.

    Args:
        field: the name of the setting that is the divisor; with ``times``, one of the divisor's two
            factors.
        parts: the divisor.
        what: the name of the dividend, for the error.
        whole: the dividend.
        times: the divisor's other factor in words; empty if ``field`` is the whole divisor.

    Raises:
        FieldError: ``parts`` does not divide ``whole``; the message suggests a divisor.
    """
    if whole % parts:
        largest = min(parts - 1, whole)
        fitting = next(n for n in range(largest, 0, -1) if whole % n == 0)
        product = f"x {times} = {parts}" if times else f"= {parts}"
        raise FieldError(field, f"{product} does not divide {what} = {whole}; {fitting} would do")


def _number(value: Any) -> Any:
    """Converts Python's and NumPy's numbers to float, and JAX's scalars to float32."""
    if isinstance(value, (int, np.number)):
        return float(value)
    return value.astype(jnp.float32) if eqx.is_array(value) and value.shape == () else value


def _fixed(default: Any, help: str, **rules: Any) -> Any:
    """Makes a field that is static in the compiled program."""
    metadata = {RULES: Rules(help, **rules)}
    return eqx.field(static=True, converter=python_scalar, default=default, metadata=metadata)


def _rate(default: float | None, help: str, **rules: Any) -> Any:
    """Makes a field that may be an array."""
    metadata = {RULES: Rules(help, changeable=True, phased=True, **rules)}
    return eqx.field(converter=_number, default=default, metadata=metadata)


class PPOConfig(eqx.Module):
    """PPO's hyperparameters.

    Integers, booleans and text are static in the compiled program. Other fields are floats or
    scalar arrays: a config made inside ``jax.vmap`` trains one agent per value. The learning rate
    may also be an optax schedule, a function of the number of gradient steps.

    Attributes:
        num_envs: number of environments in the batch.
        num_steps: steps per environment between two updates.
        learning_rate: Adam's step size (if annealed, the first one), or a schedule. The schedule's
            argument is the number of the gradient step, counted from 0 over the whole run, as if
            all updates had this config's number of steps; steps that ``target_kl`` skips are
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
            (:class:`ppo_mask.networks.BFloat16ActorCritic`); all else is float32.
        normalize_observations: whether to normalize the observation's floats to mean 0 and variance
            1 (:class:`ppo_mask.networks.NormalizedActorCritic`).
        normalize_rewards: whether to divide rewards by the discounted return's standard deviation
            (:class:`ppo_mask.ppo.RewardScaler`). The value function then learns the scaled returns;
            logged rewards and returns are not scaled.

    Raises:
        FieldError: a value is invalid; the message names the field. A FieldError is a ValueError.

    Example:
        >>> import ppo_mask as pm
        >>> config = pm.PPOConfig(num_envs=8, num_steps=16, learning_rate=1e-3)
        >>> config.batch_size, config.gradient_steps
        (128, 16)
        >>> pm.PPOConfig(gamma=2)
        Traceback (most recent call last):
        ppo_mask.errors.FieldError: gamma must be at most 1, got 2.0
        >>> pm.PPOConfig(num_envs=2048).scaling
        Scaling(num_minibatches=32, update_epochs=2)
        >>> import optax
        >>> schedule = optax.cosine_decay_schedule(3e-3, decay_steps=100 * config.gradient_steps)
        >>> config = pm.PPOConfig(num_envs=8, num_steps=16, learning_rate=schedule)
    """

    num_envs: int = _fixed(
        256, "environments side by side; 2048 and more on an accelerator", at_least=1
    )
    num_steps: int = _fixed(128, "steps of each environment per update", at_least=1)
    learning_rate: float | Float[Array, ""] | optax.Schedule = _rate(
        2.5e-4, "learning rate", at_least=0, alias="lr"
    )
    anneal_lr: bool = _fixed(False, "let the learning rate fall to 0 over the run", changeable=True)
    gamma: float | Float[Array, ""] = _rate(0.99, "discount per step", at_least=0, at_most=1)
    gae_lambda: float | Float[Array, ""] = _rate(
        0.95, "decay of the advantage trace", at_least=0, at_most=1
    )
    num_minibatches: int | None = _fixed(
        None,
        "parts of a batch, one gradient step each; none: by the batch's size",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    gradient_accumulation: int = _fixed(
        1,
        "parts of a minibatch, computed in turn; saves memory, changes no result",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    update_epochs: int | None = _fixed(
        None,
        "passes over a batch; none: by the batch's size",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    clip_eps: float | Float[Array, ""] = _rate(
        0.2, "how far the policy's ratio may move from 1", above=0, finite=False
    )
    clip_value: bool = _fixed(
        False, "clip the value's change too, with the same clip_eps", changeable=True
    )
    vf_coef: float | Float[Array, ""] = _rate(0.5, "weight of the value loss", at_least=0)
    ent_coef: float | Float[Array, ""] = _rate(0.01, "weight of the entropy bonus", at_least=0)
    max_grad_norm: float | Float[Array, ""] = _rate(
        0.5, "gradients are scaled down to this norm", above=0, finite=False
    )
    target_kl: float | Float[Array, ""] | None = _rate(
        None,
        "end an update's gradient steps before one whose minibatch has a larger approx_kl",
        above=0,
        finite=False,
    )
    precision: str = _fixed(
        "float32",
        "of the network's matrix products: float32, or bfloat16 for accelerators and CPUs with AMX",
        one_of=PRECISIONS,
    )
    normalize_observations: bool = _fixed(
        False, "normalize the observation's floats by their running mean and deviation"
    )
    normalize_rewards: bool = _fixed(
        False, "divide rewards by the running deviation of the discounted return"
    )

    @property
    def batch_size(self) -> int:
        """Environment steps per update."""
        return self.num_envs * self.num_steps

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

    def total_updates(self, total_timesteps: SupportsIndex) -> int:
        """Returns the number of updates for ``total_timesteps`` environment steps, rounded up.

        Raises:
            FieldError: ``total_timesteps`` is below 0.
            RunError: there are more updates than an int32 can count.
        """
        steps = int(total_timesteps)
        check_at_least(0, total_timesteps=steps)
        updates = -(-steps // self.batch_size)
        if updates > MAX_COUNT:
            raise RunError(
                f"{steps:,} steps are {updates:,} updates of {self.batch_size:,}, and a "
                f"run has at most {MAX_COUNT:,}: take larger batches"
            )
        return updates

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if wanted := _violation(value, field):
                raise FieldError(field.name, f"must be {wanted}, got {value!r}")
        if self.anneal_lr and callable(self.learning_rate):
            raise FieldError(
                "anneal_lr", "needs a number as learning rate: a schedule anneals by itself"
            )
        minibatches = self.scaling.num_minibatches
        batch = f"the batch of {self.num_envs} environments x {self.num_steps} steps"
        check_divides("num_minibatches", minibatches, batch, self.batch_size)
        check_divides(
            "gradient_accumulation",
            self.gradient_accumulation,
            f"the minibatch of {self.batch_size} / {minibatches}",
            self.batch_size // minibatches,
        )


def _violation(value: Any, field: dataclasses.Field[Any]) -> str:
    """Describes the valid values of a field; empty if ``value`` is valid."""
    rules: Rules = field.metadata[RULES]
    if isinstance(field.default, bool) or (value is None and field.default is None):
        return ""
    if field.name == "learning_rate" and callable(value):
        return _schedule_violation(value)
    if isinstance(field.default, str):
        return "" if str(value) in rules.one_of else " or ".join(rules.one_of)
    if field.metadata.get("static"):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return rules.violation(cast(int, value)) if whole else "a whole number"
    if isinstance(value, float):
        return rules.violation(value)
    # The value of a traced array is unknown.
    is_scalar = eqx.is_array(value) and getattr(value, "shape", None) == ()
    return "" if is_scalar else "a number or a scalar array"


def _schedule_violation(schedule: Any) -> str:
    """Describes a valid learning rate schedule; empty if ``schedule`` is valid."""
    wanted = "a schedule that JAX can trace: from the gradient step's number to one number"
    try:
        with number_settings():  # Optax relies on JAX's defaults.
            value = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
    except (TypeError, ValueError, ArithmeticError):
        return wanted
    return "" if getattr(value, "shape", None) == () else wanted
