"""The settings of every run, and the library's defaults.

A program adds a group for its environment, and may change defaults::

    RunConfig(MySettings(), PPO(ent_coef=0.15))
"""

import dataclasses
from functools import partial
from typing import Generic, TypeVar

from ppo_mask.checkpoints._runs import LATEST
from ppo_mask.devices.cpu import ENVS_PER_CORE
from ppo_mask.networks.layers import Activation
from ppo_mask.ppo import PPO
from ppo_mask.runner._phases import PhaseSettings
from ppo_mask.runner._schema import setting
from ppo_mask.training import AbstractAlgorithm
from ppo_mask.training._rules import MAX_COUNT

Environment = TypeVar("Environment")

MAX_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """The policy and value network.

    Attributes:
        offered: the names allowed for ``network``; empty if every name is allowed. Not a setting:
            the runner takes these names from :class:`ppo_mask.runner.Task`.
    """

    network: str = setting("default", "which of the program's networks", one_of="offered")
    hidden_dim: int = setting(256, "width of the hidden layers", at_least=1)
    num_layers: int = setting(2, "hidden layers", at_least=1)
    shared_layers: int = setting(
        0, "hidden layers, from the first on, that policy and value share in an MLP", at_least=0
    )
    activation: Activation = setting("tanh", "of the hidden layers of an MLP, and of sets")
    channels_first: bool | None = setting(
        None,
        "whether the first axis of an image or board has its channels, or else the last; none: as "
        "the environment says, or the first if it is the shortest",
    )
    initial_policy: str | None = setting(
        None, "begin with the weights of a run, a checkpoint, or a saved policy; none: random ones"
    )
    offered: tuple[str, ...] = ()


# For settings that a resumed run may change.
_changeable = partial(setting, changeable=True)
# For settings that a run does not store: the run's name, and settings of this process alone.
_unstored = partial(setting, stored=False)


@dataclasses.dataclass(frozen=True)
class LoggingSettings:
    """What is logged, and how often."""

    log_interval: int = _changeable(10, "updates between log lines", at_least=1)
    eval_interval: int | None = _changeable(
        None, "updates between greedy evaluations in fresh environments", at_least=1
    )
    eval_episodes: int = _changeable(64, "episodes of an evaluation", at_least=1, at_most=MAX_COUNT)
    eval_num_envs: int | None = _changeable(
        None,
        "environments of an evaluation; none: one per episode, at most 256 (if they are in Python, "
        "at most as many as in training)",
        at_least=1,
    )
    eval_max_steps: int = _changeable(
        1000, "steps after which an evaluation truncates an episode", at_least=1, at_most=MAX_COUNT
    )
    tensorboard: bool = _changeable(True, "write TensorBoard event files")
    wandb: bool = _changeable(False, "log to Weights & Biases too; needs the extra 'wandb'")
    project: str = _changeable("ppo-mask", "the project on W&B")
    entity: str | None = _changeable(None, "the user or team on W&B; none: the account's default")
    artifact: bool = _changeable(
        True, "send each new checkpoint to W&B, which keeps the newest and the best"
    )


@dataclasses.dataclass(frozen=True)
class CheckpointSettings:
    """When to save checkpoints, besides the end of the run, Ctrl+C and SIGTERM."""

    save_interval_minutes: float = _changeable(10.0, "minutes between checkpoints", above=0)
    save_interval: int | None = _changeable(
        None, "updates, not steps, between checkpoints; replaces the minutes", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Which run this is, and how long it is."""

    total_timesteps: int = _changeable(
        10_000_000, "environment steps in all; the last update may go past it", at_least=1
    )
    phases: PhaseSettings | None = setting(
        None, "settings that change during the run, a YAML file; none: none do", changeable=True
    )
    seed: int = setting(0, "seed of all randomness", at_least=0, at_most=MAX_SEED)
    checkpoint_dir: str = _unstored(
        "checkpoints",
        "where each run has its folder: a folder, or a URL in a bucket (gs://..., s3://...)",
    )
    run_name: str | None = _unstored(
        None, "the run's folder; none: generated from the date and a number"
    )
    run_suffix: str | None = _unstored(None, "what a new run's name ends in, after a dash")
    resume: str | None = _unstored(
        None,
        "resume a run: its folder, name or URL, or one checkpoint in it; nothing, or 'latest', is "
        "the run that was saved last",
        bare=LATEST,
    )
    rewind: bool = _unstored(
        False, "with --resume of an older checkpoint: drop what was saved and logged after it"
    )
    preset: str | None = _unstored(
        None, "settings that go together, listed below where the program has some; flags win"
    )
    config: str | None = _unstored(None, "a YAML file with these settings; flags win over it")
    print_config: bool = _unstored(
        False, "print all settings, each with a comment, as a file for --config, and do no more"
    )
    auto_tune: bool = _unstored(
        False, "measure how many environments this device is fastest with, and take that number"
    )
    profile: int | None = _unstored(
        None,
        "trace this update into the run's folder; without a number, or 0, the third from now",
        at_least=0,
        bare=0,
    )
    num_seeds: int = _unstored(
        1,
        "number of seeds, from --seed on, to train in one compiled program; each has a folder",
        at_least=1,
        at_most=1000,
    )
    num_devices: int | None = _unstored(
        None,
        "devices to split the environments over; none: all there are, and of a CPU's cores as many "
        f"as have {ENVS_PER_CORE} environments each",
        at_least=1,
    )
    distributed: bool | None = _unstored(
        None,
        "train together with other processes; none: on TPU pods, under Slurm, and where "
        "JAX_NUM_PROCESSES says so",
    )
    debug_nans: bool = _unstored(
        False, "check for NaN after each update, and say which line of code made the first one"
    )


@dataclasses.dataclass(frozen=True)
class RunConfig(Generic[Environment]):
    """All settings of a run, in groups."""

    environment: Environment
    algorithm: AbstractAlgorithm = PPO()
    network: NetworkSettings = NetworkSettings()
    logging: LoggingSettings = LoggingSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    run: RunSettings = RunSettings()


def resolve(config: RunConfig[Environment]) -> RunConfig[Environment]:
    """Fills in the numbers that the algorithm chooses, such as PPO's numbers of minibatches."""
    return dataclasses.replace(config, algorithm=config.algorithm.resolved())
