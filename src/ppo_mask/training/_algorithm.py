"""The interface of algorithms: what is trained, and how."""

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, SupportsIndex

import equinox as eqx
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, Real, Scalar

from ppo_mask.acting import RolloutState, Transition
from ppo_mask.errors import RunError, check_at_least
from ppo_mask.networks import Model
from ppo_mask.training._rules import MAX_COUNT, check_rules


class At(NamedTuple):
    """The moment of an update, and what it may use.

    Attributes:
        key: a random key for this update alone.
        update: updates done before.
        total_updates: updates of the whole run.
        mesh: the devices that the environments are split over, if there are several.
    """

    key: Key[Array, ""]
    update: Int[Array, ""]
    total_updates: Real[Array, ""]
    mesh: Mesh | None

    @property
    def progress(self) -> Float[Array, ""]:
        """The share of the run's updates done: 0 in the first update, under 1 in the last."""
        total = jnp.maximum(self.total_updates.astype(jnp.float32), 1)
        return self.update.astype(jnp.float32) / total


class AbstractAlgorithm(eqx.Module):
    """An algorithm: all constants of a learner, and what the learner does in an update.

    In each update, the trainer lets :meth:`actor` act for ``num_steps`` steps in ``num_envs``
    environments, and then calls :meth:`learn`. The trainer does everything else: the compiled
    loop, logs, checkpoints, exact resume, devices, seeds, curricula. A field that
    :func:`static_setting` or :func:`traced_setting` declares is a flag of a program's command line.

    All methods with arrays are traced. The algorithm's own state is any tree, such as a target
    network; its arrays are saved with the run. Fields of its modules that hold an array with an
    axis of environments say so by :func:`~ppo_mask.devices.sharding.per_env`.

    Example:
        >>> import jax.numpy as jnp
        >>> import ppo_mask as pm
        >>> from ppo_mask.training import static_setting
        >>> class LearnsNothing(pm.AbstractAlgorithm):
        ...     num_envs: int = static_setting(8, "environments side by side", at_least=1)
        ...     num_steps: int = static_setting(4, "steps of each environment", at_least=1)
        ...     def learn(self, model, own, before, transitions, last_value, at):
        ...         return model, own, {"mean_value": transitions.decision.value.mean()}
        >>> LearnsNothing(num_envs=2).batch_size
        8

    Attributes:
        num_envs: number of environments in the batch.
        num_steps: steps per environment between two updates.
        keeps_next: whether a :class:`~ppo_mask.acting.Transition` keeps the observation and the
            mask after its step.
        logged_last: names of metrics of which a log line has the last value, not the mean.
    """

    if TYPE_CHECKING:
        # Not as fields, which type checkers would count before all fields of an algorithm.
        num_envs, num_steps = 0, 0
    else:
        num_envs: eqx.AbstractVar[int]
        num_steps: eqx.AbstractVar[int]
    keeps_next: ClassVar[bool] = False
    logged_last: ClassVar[tuple[str, ...]] = ("lr",)

    def __check_init__(self) -> None:
        check_rules(self)
        self.check_settings()

    @property
    def batch_size(self) -> int:
        """Environment steps per update."""
        return self.num_envs * self.num_steps

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

    def check_settings(self) -> None:
        """Checks settings that depend on each other; called when an algorithm is made.

        Raises:
            FieldError: two settings contradict each other.
        """

    def check(self, model: Model, num_devices: int) -> None:
        """Checks that the algorithm can train a model on a number of devices.

        Raises:
            ValueError: it cannot; the message names the number that does not fit.
        """
        check_split(self.num_envs, num_devices)

    def resolved(self) -> "AbstractAlgorithm":
        """Returns the algorithm with a number in place of each None that stands for a choice."""
        return self

    def facts(self) -> dict[str, str]:
        """Describes an update for the console, in a few words each."""
        envs, steps = self.num_envs, self.num_steps
        return {"batch": f"{envs} envs x {steps} steps = {self.batch_size:,}"}

    def metric_names(self) -> tuple[str, ...] | None:
        """The names of the metrics of :meth:`learn`; None if only a trace can tell.

        The trainer must know the names before the first update. To trace takes time, so an
        algorithm that knows its metrics may say so.
        """
        return None

    def init(self, model: Model, rollout: RolloutState, key: Key[Array, ""]) -> tuple[Model, Any]:
        """Makes the algorithm's own state before the first update.

        Args:
            model: the model to train, with the weights that it begins with.
            rollout: the environments at the start.
            key: a random key.

        Returns:
            The model, perhaps wrapped; a model that this method has wrapped before stays as it is.
            And the algorithm's own state: by default, none.
        """
        return model, ()

    def actor(self, model: Model, own: Any, at: At) -> Model:
        """Returns the model whose samples act in an update, and whose values are recorded.

        Args:
            model: the model that is trained, which is also the default.
            own: the algorithm's own state.
            at: the moment; its key differs from that of :meth:`learn`.
        """
        return model

    @abstractmethod
    def learn(
        self,
        model: Model,
        own: Any,
        before: RolloutState,
        transitions: Transition,
        last_value: Float[Array, " envs"],
        at: At,
    ) -> tuple[Model, Any, dict[str, Scalar]]:
        """Learns from a rollout.

        Args:
            model: the model before the rollout.
            own: the algorithm's own state.
            before: the environments before the rollout, with hidden states of a recurrent model.
            transitions: the rollout, with axes [steps, envs, …].
            last_value: the actor's values of the states in which the rollout stopped.
            at: the moment.

        Returns:
            The model and the own state after the update, and metrics: one number for each name,
            which is logged as ``train/<name>``.
        """


def check_same_but_numbers(algorithm: AbstractAlgorithm, changed: Any) -> None:
    """Checks that a schedule has changed nothing of an algorithm but the values of numbers.

    Raises:
        RunError: it has; the message names the field.
    """
    for field in dataclasses.fields(algorithm):
        before, after = both = [getattr(x, field.name) for x in (algorithm, changed)]
        are_numbers = all(isinstance(x, float) or eqx.is_array(x) for x in both)
        if not (are_numbers or before is after or eqx.tree_equal(before, after)):
            raise RunError(
                f"a schedule may change numbers alone, and it changes {field.name} from {before} "
                f"to {after}"
            )


def check_split(num_envs: int, num_devices: int) -> None:
    """Checks that each device can have an equal share of the environments.

    Raises:
        ValueError: the shares would not be equal; the message suggests a number.
    """
    if num_envs % num_devices:
        raise ValueError(
            f"{num_envs} environments cannot be split over {num_devices} devices; "
            f"{max(num_envs // num_devices, 1) * num_devices} could"
        )
