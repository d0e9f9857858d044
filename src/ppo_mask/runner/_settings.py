"""The settings of a run that know no environment, with the library's defaults.

An application brings a group for its environment and changes defaults where it knows better::

    RunConfig(environment=MySettings(), training=TrainingSettings(ent_coef=0.15))
"""

import dataclasses
import re
from typing import Any, Generic, NamedTuple, TypeVar

from ppo_mask.checkpoints import LATEST
from ppo_mask.devices.cpu import ENVS_PER_CORE
from ppo_mask.errors import RunError
from ppo_mask.ppo import RULES, PPOConfig, Rules
from ppo_mask.runner._schema import flag_for, setting

Environment = TypeVar("Environment")

_PPO_FIELDS = {field.name: field for field in dataclasses.fields(PPOConfig)}
_RENAMED = {"learning_rate": "lr"}

MAX_COUNT = 2**31 - 1
"""Of steps and episodes, which compiled programs count in 32 bits."""

MAX_SEED = 2**32 - 1

REFERENCE_BATCH = 32_768
REFERENCE_MINIBATCHES = 4
REFERENCE_EPOCHS = 4
_MAX_MINIBATCHES = 64
_MIN_EPOCHS = 2


def name_flags(text: str) -> str:
    """Puts flags in the place of the names of :class:`ppo_mask.ppo.PPOConfig`'s fields."""
    names = "|".join(_PPO_FIELDS)
    return re.sub(rf"\b({names})\b", lambda found: flag_for(_RENAMED.get(found[0], found[0])), text)


def _of_ppo(name: str, by_batch_size: bool = False) -> Any:
    """The setting for a field of PPOConfig: of its default and rules, or filled in by scale."""
    field = _PPO_FIELDS[name]
    rules: Rules = field.metadata[RULES]
    help = name_flags(rules.help) + ("; none: by the batch's size" if by_batch_size else "")
    metadata = {RULES: dataclasses.replace(rules, help=help)}
    return dataclasses.field(default=None if by_batch_size else field.default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """PPO and its batch."""

    num_envs: int = _of_ppo("num_envs")
    num_steps: int = _of_ppo("num_steps")
    total_timesteps: int = setting(
        10_000_000,
        "environment steps in all; the last update may go past it",
        at_least=1,
        changeable=True,
    )
    lr: float = _of_ppo("learning_rate")
    anneal_lr: bool = _of_ppo("anneal_lr")
    gamma: float = _of_ppo("gamma")
    gae_lambda: float = _of_ppo("gae_lambda")
    num_minibatches: int | None = _of_ppo("num_minibatches", by_batch_size=True)
    update_epochs: int | None = _of_ppo("update_epochs", by_batch_size=True)
    gradient_accumulation: int = _of_ppo("gradient_accumulation")
    clip_eps: float = _of_ppo("clip_eps")
    clip_value: bool = _of_ppo("clip_value")
    target_kl: float | None = _of_ppo("target_kl")
    vf_coef: float = _of_ppo("vf_coef")
    ent_coef: float = _of_ppo("ent_coef")
    max_grad_norm: float = _of_ppo("max_grad_norm")
    precision: str = _of_ppo("precision")
    normalize_observations: bool = _of_ppo("normalize_observations")
    normalize_rewards: bool = _of_ppo("normalize_rewards")
    seed: int = setting(0, "of everything random", at_least=0, at_most=MAX_SEED)


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """The policy and value network.

    Attributes:
        offered: the networks that there are to choose from, no setting itself; the runner takes
            them from :class:`ppo_mask.runner.Task`. Empty: any name.
    """

    network: str = setting("default", "which of the program's networks", one_of="offered")
    hidden_dim: int = setting(256, "width of the hidden layers", at_least=1)
    num_layers: int = setting(2, "hidden layers", at_least=1)
    shared_layers: int = setting(
        0, "hidden layers, from the first on, that policy and value share in an MLP", at_least=0
    )
    initial_policy: str | None = setting(
        None,
        "begin with the weights of a run, a checkpoint, or a saved policy; none: random ones",
        is_path=True,
    )
    offered: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class LoggingSettings:
    """What is written down, and how often."""

    log_interval: int = setting(10, "updates between log lines", at_least=1, changeable=True)
    eval_interval: int | None = setting(
        None,
        "updates between greedy evaluations in fresh environments",
        at_least=1,
        changeable=True,
    )
    eval_episodes: int = setting(
        64, "episodes of an evaluation", at_least=1, at_most=MAX_COUNT, changeable=True
    )
    eval_max_steps: int = setting(
        1000,
        "steps after which an evaluation cuts an episode off",
        at_least=1,
        at_most=MAX_COUNT,
        changeable=True,
    )
    tensorboard: bool = setting(True, "write TensorBoard event files", changeable=True)
    wandb: bool = setting(
        False, "log to Weights & Biases too; needs the extra 'wandb'", changeable=True
    )
    project: str = setting("ppo-mask", "the project on W&B", changeable=True)
    entity: str | None = setting(
        None, "the user or team on W&B; none: the account's default", changeable=True
    )
    artifact: bool = setting(
        True, "send the newest and the best checkpoint to W&B at the end", changeable=True
    )


@dataclasses.dataclass(frozen=True)
class CheckpointSettings:
    """When the run is saved. It always is at the end, on Ctrl+C and on SIGTERM."""

    save_interval_minutes: float = setting(
        10.0, "minutes between checkpoints", above=0, changeable=True
    )
    save_interval: int | None = setting(
        None, "updates between checkpoints; replaces the minutes", at_least=1, changeable=True
    )


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Which run this is."""

    checkpoint_dir: str = setting(
        "checkpoints",
        "what holds a folder per run: a folder, or one in a bucket (gs://..., s3://...)",
        is_path=True,
    )
    run_name: str | None = setting(
        None, "the run's folder; none: made up from the date and a number"
    )
    run_suffix: str | None = setting(None, "put after the run's name")
    resume: str | None = setting(
        None,
        "resume a run: its folder, name or URL, or one checkpoint in it; nothing, or 'latest', is "
        "the run that was saved last",
        bare=LATEST,
        is_path=True,
    )
    rewind: bool = setting(
        False, "with --resume of an older checkpoint: drop what was saved and logged after it"
    )
    preset: str | None = setting(
        None, "settings that go together, listed below where the program has some; flags win"
    )
    config: str | None = setting(None, "a YAML file with these settings; flags win over it")
    auto_tune: bool = setting(
        False, "try out how many environments this device does best with, and take so many"
    )
    profile: int | None = setting(
        None,
        "trace this update into the run's folder; without a number, or 0, the third from now",
        at_least=0,
        bare=0,
    )
    num_seeds: int = setting(
        1,
        "train so many seeds, from --seed on, in one compiled program; each has a folder",
        at_least=1,
        at_most=1000,
    )
    num_devices: int | None = setting(
        None,
        "devices to split the environments over; none: all there are, and of a CPU's cores as many "
        f"as have {ENVS_PER_CORE} environments each",
        at_least=1,
    )
    distributed: bool | None = setting(
        None,
        "train together with other processes; none: on TPU pods, under Slurm, and where "
        "JAX_NUM_PROCESSES says so",
    )
    debug_nans: bool = setting(
        False, "look after each update, and say which line of code made the first NaN"
    )


@dataclasses.dataclass(frozen=True)
class RunConfig(Generic[Environment]):
    """All settings of a run, in groups."""

    environment: Environment
    training: TrainingSettings = TrainingSettings()
    network: NetworkSettings = NetworkSettings()
    logging: LoggingSettings = LoggingSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    run: RunSettings = RunSettings()


def resolve(config: RunConfig[Environment]) -> RunConfig[Environment]:
    """The config with everything filled in that depends on something else.

    Raises:
        RunError: settings that do not go together.
    """
    training = config.training
    scaling = scale(
        training.num_envs, training.num_steps, training.num_minibatches, training.update_epochs
    )
    training = dataclasses.replace(training, **scaling._asdict())
    ppo_config(training)
    return dataclasses.replace(config, training=training)


def ppo_config(training: TrainingSettings) -> PPOConfig:
    """The learner's config for settings that :func:`resolve` has filled in.

    Raises:
        RunError: settings that do not go together.
    """
    values = {name: getattr(training, _RENAMED.get(name, name)) for name in _PPO_FIELDS}
    try:
        return PPOConfig(**values)
    except ValueError as error:
        raise RunError(name_flags(str(error))) from error


def describe_batch(ppo: PPOConfig) -> str:
    """What an update learns from, in half a line."""
    return (
        f"{ppo.num_envs} envs x {ppo.num_steps} steps = {ppo.batch_size:,}; "
        f"{ppo.num_minibatches} minibatches, {ppo.update_epochs} epochs"
    )


class Scaling(NamedTuple):
    """What one update does with its batch.

    Attributes:
        num_minibatches: parts that the batch is cut into.
        update_epochs: times that the batch is gone through.
    """

    num_minibatches: int
    update_epochs: int


def scale(
    num_envs: int,
    num_steps: int,
    num_minibatches: int | None = None,
    update_epochs: int | None = None,
) -> Scaling:
    """Fills in what is None.

    With a batch of several times :data:`REFERENCE_BATCH` and neither number given, minibatches grow
    and epochs shrink with it. Giving either number is taken as knowing better: the other one is
    then the reference's.
    """
    factor = num_envs * num_steps // REFERENCE_BATCH
    if factor > 1 and num_minibatches is None and update_epochs is None:
        return Scaling(
            min(REFERENCE_MINIBATCHES * factor, _MAX_MINIBATCHES),
            max(_MIN_EPOCHS, REFERENCE_EPOCHS // factor),
        )
    return Scaling(
        REFERENCE_MINIBATCHES if num_minibatches is None else num_minibatches,
        REFERENCE_EPOCHS if update_epochs is None else update_epochs,
    )
