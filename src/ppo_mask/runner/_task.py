"""The task of a training program, and the first state of a run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import equinox as eqx
import jax
from jax.sharding import Mesh
from jaxtyping import Array, Key

from ppo_mask.checkpoints import load_weights
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._shapes import require_env
from ppo_mask.errors import RunError
from ppo_mask.networks import Model, ModelLike, as_model, network_for
from ppo_mask.runner._phases import phased_curriculum, phased_schedule
from ppo_mask.runner._settings import NetworkSettings, RunConfig
from ppo_mask.training import Callback, Curriculum, Metric, Trainer, TrainState
from ppo_mask.training._names import check_metric_names

Environment = TypeVar("Environment")

_UNNAMED = NetworkSettings().network
RANDOM = "random"
"""The name of the policy of random play, which every program has."""


MakeModel: TypeAlias = Callable[[AbstractEnv[Any], NetworkSettings, Array], ModelLike]
"""A function that makes a network for an environment, from settings and a key."""


def default_network(env: AbstractEnv[Any], network: NetworkSettings, key: Key[Array, ""]) -> Model:
    """Makes the default network for an environment.

    Raises:
        RunError: the observation contains no numbers.
    """
    sizes = ("hidden_dim", "num_layers", "shared_layers", "activation", "channels_first")
    return _network_of(None, *sizes)(env, network, key)


def _network_of(kind: str | None, *sizes: str) -> Callable[..., Model]:
    """Returns a function that makes a kind of network with some of the settings."""

    def make_model(env: AbstractEnv[Any], network: NetworkSettings, key: Key[Array, ""]) -> Model:
        try:
            return network_for(
                env, kind, key=key, **{name: getattr(network, name) for name in sizes}
            )
        except ValueError as error:
            raise RunError(str(error)) from error

    return make_model


_OFFERED: Mapping[str, MakeModel] = {
    _UNNAMED: default_network,
    "mlp": _network_of("mlp", "hidden_dim", "num_layers", "shared_layers", "activation"),
    "gru": _network_of("gru", "hidden_dim"),
    "sets": _network_of("sets", "hidden_dim", "num_layers", "activation"),
}
"""The networks of a task that names none."""


@dataclasses.dataclass(frozen=True)
class Task(Generic[Environment]):
    """An environment, the networks to train on it, and what to log.

    Attributes:
        make_env: makes the environment from its settings. The message of a ValueError becomes the
            command line's error message.
        make_model: makes the network, which is called "default".
        networks: functions like ``make_model``, by name, to use in its place; ``--network`` chooses
            a name, and the first name is the default. A task with neither offers the default
            network, "mlp", "gru" and "sets".
        metrics: additional metrics to log, by name.
        console_columns: additional columns of the console's table: the names of metrics, by
            heading.
        curriculum: makes the curriculum from the environment's settings. Evaluations always use the
            environment that ``make_env`` makes.
        callbacks: makes additional callbacks from all settings.
        presets: a folder of presets, which are ``--config`` files; ``--preset`` names one. None if
            there are no presets. On a GPU or TPU, a preset's block ``accelerator`` overrides the
            preset's other settings; its ``num_envs`` is for each device.
        policies: the program's own policies, by the names that ``evaluate``, ``watch`` and
            ``--initial-policy`` accept: the paths of saved policies, and policies without weights,
            which are always sampled. Every program also has "random".
        play_env: makes the environment in which a trained policy plays, from the environment's
            settings and the policy's model; by default ``make_env``.
        evaluate_metrics: metrics that only the command ``evaluate`` computes, by name.
        search: arguments of :class:`ppo_mask.search.Search` for a policy, where the program knows
            them better: a function of the policy's ``TrainedRun``, and of the settings that its
            training ended with.
    """

    make_env: Callable[[Environment], AbstractEnv[Any]]
    make_model: MakeModel = default_network
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict[str, Metric])
    console_columns: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    curriculum: Callable[[Environment], Curriculum | None] = lambda _: None
    networks: Mapping[str, MakeModel] = dataclasses.field(default_factory=dict[str, MakeModel])
    callbacks: Callable[[RunConfig[Environment]], Sequence[Callback]] = lambda _: ()
    presets: Path | None = None
    policies: Mapping[str, Path | ModelLike] = dataclasses.field(default_factory=dict[str, Any])
    play_env: Callable[[Environment, Model], AbstractEnv[Any]] | None = None
    evaluate_metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict[str, Metric])
    search: Callable[[Any, RunConfig[Environment]], Mapping[str, Any]] = lambda run, last: {}

    def __post_init__(self) -> None:
        if self.networks and self.make_model is not default_network:
            raise ValueError("a task has make_model or networks, not both")

    def offer(self, defaults: RunConfig[Environment]) -> RunConfig[Environment]:
        """Adds the task's networks to the defaults, as choices of ``--network``."""
        offered = tuple(self._makers)
        chosen = defaults.network.network
        network = dataclasses.replace(
            defaults.network, network=offered[0] if chosen == _UNNAMED else chosen, offered=offered
        )
        return dataclasses.replace(defaults, network=network)

    def new_model(
        self, env: AbstractEnv[Any], network: NetworkSettings, key: Key[Array, ""]
    ) -> Model:
        """Makes the model that the settings choose.

        Raises:
            RunError: the task has no network of that name, or the task's function returns neither a
                model nor a network.
        """
        makers = self._makers
        name = next(iter(makers)) if network.network == _UNNAMED else network.network
        if name not in makers:
            raise RunError(f"there is no network {name}; there are {', '.join(makers)}")
        return as_model(makers[name](env, network, key))

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The names of the program's own policies."""
        return (RANDOM, *self.policies)

    def weights_of(self, place: str) -> str | None:
        """Finds a policy by one of these names, or by another place.

        Returns:
            Where the policy's weights are; None for a policy of the program without weights.
        """
        found = self.policies.get(place, place)
        has_weights = isinstance(found, str | Path) and place != RANDOM
        return str(found) if has_weights else None

    @property
    def _makers(self) -> Mapping[str, MakeModel]:
        one = {_UNNAMED: self.make_model}
        return self.networks or (_OFFERED if self.make_model is default_network else one)


def make_parts(
    task: Task[Environment], config: RunConfig[Environment]
) -> tuple[AbstractEnv[Any], Curriculum | None]:
    """Makes the environment and the curriculum from a run's settings.

    Raises:
        RunError: a setting is wrong, ``make_env`` returns no environment, or a metric has a
            reserved name.
    """
    try:
        parts = task.make_env(config.environment), phased_curriculum(task.curriculum, config)
        require_env(parts[0])
        check_metric_names(task.metrics)
    except ValueError as error:
        raise RunError(str(error)) from error
    return parts


def make_trainer(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    curriculum: Curriculum | None,
    mesh: Mesh | None,
) -> Trainer:
    """Makes the trainer of a run; environment and curriculum come from :func:`make_parts`."""
    return Trainer(
        env,
        config.algorithm,
        metrics=task.metrics,
        curriculum=curriculum,
        schedule=phased_schedule(config),
        mesh=mesh,
    )


def run_keys(config: RunConfig[Any]) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """Returns the random key of the run itself, and the random key of the evaluations."""
    run_key, evaluation_key = jax.random.split(jax.random.key(config.run.seed))
    return run_key, evaluation_key


def first_model(
    task: Task[Any], network: NetworkSettings, env: AbstractEnv[Any]
) -> Callable[[Key[Array, ""]], Model]:
    """Returns a compiled function that makes a new network of a task from a key."""
    # Compiled as a whole, since compiling operation by operation takes seconds.
    return eqx.filter_jit(lambda key: task.new_model(env, network, key))


def with_initial_policy(
    task: Task[Any],
    network: NetworkSettings,
    make_model: Callable[[Key[Array, ""]], Model],
    init: Callable[[Model, Key[Array, ""]], TrainState],
) -> Callable[[Key[Array, ""]], Model]:
    """Returns ``make_model``, or a function that returns the policy of ``--initial-policy``.

    The weights are there before ``init``, so that whatever copies the model begins with them.

    Args:
        task: the program's task.
        network: the settings.
        make_model: makes a network of the task from a key.
        init: makes the first state of a run, whose model may be wrapped, as a saved policy is.

    Raises:
        RunError: the policy cannot be loaded, or is of another architecture.
    """
    if (name := network.initial_policy) is None:
        return make_model
    key = jax.random.key(0)
    like = eqx.filter_eval_shape(lambda: init(make_model(key), key)).model
    if (place := task.weights_of(name)) is None:
        raise RunError(f"--initial-policy: the policy {name} has no weights to begin with")
    loaded = load_weights(place, like)
    return lambda key: loaded
