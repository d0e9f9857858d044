"""The task of ``hackmatrix train``: the game, its settings, the networks and the metrics.

To train from a program of your own, pass :data:`TASK` and :data:`DEFAULTS` to
:func:`ppo_mask.runner.main`, or copies of them changed with ``dataclasses.replace``.
"""

import dataclasses
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
from jaxtyping import Array, Float

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, SIPHON_ACTION
from hackmatrix.curriculum import AdaptiveStages, RewardWeights, StartingStages, TrainingGames
from hackmatrix.env import HackMatrix
from hackmatrix.networks import (
    PlayerCentered,
    board_network,
    flat_mlp,
    player_centered_gru,
    player_centered_mlp,
)
from hackmatrix.networks.scripted import SCRIPTED
from hackmatrix.rules.game import NUM_STAGES
from hackmatrix.rules.rewards import COMPONENTS, Shaping
from hackmatrix.rules.starts import MOST_GIVEN, HeadStart
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.networks import Model
from ppo_mask.ppo import PPO
from ppo_mask.runner import LoggingSettings, RunConfig, Task, TrainedRun, setting
from ppo_mask.training import Curriculum, Metric


def _phased(default: Any, help: str, **rules: Any) -> Any:
    return setting(default, help, changeable=True, phased=True, **rules)


def _given(default: int, what: str) -> Any:
    return _phased(default, f"head start: up to this {what}", at_least=0, at_most=MOST_GIVEN)


Number = float | Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class GameSettings:
    """HackMatrix, and how training games differ from it.

    ``starting_stages`` and all settings below it are for training games only: evaluations play the
    original game, with its reward. A number that ``--phases`` changes during a run
    is a scalar array.
    """

    undo_depth: int = setting(8, "positions that UNDO can go back through in a stage")
    max_steps: int | None = setting(None, "actions after which a game is cut off; none: no limit")
    time_aware: bool = setting(
        False, "show the networks mlp and recurrent how many actions the game has taken"
    )
    starting_stages: StartingStages | None = _phased(
        None,
        "relative frequencies of the stages that training games begin in, as 1=3,4=1, or a YAML "
        "file; none: stage 1",
    )
    adaptive_starts: Number = setting(
        0.0,
        "share of training games whose starting stage is sampled by how much there is to learn "
        "in it: most often a stage completed half the time",
        at_least=0,
        at_most=1,
        phased=True,
    )
    head_start: Number = _phased(
        0.0,
        "share of training games that begin with the extras of the given-... settings",
        at_least=0,
        at_most=1,
    )
    given_programs: Number = _phased(
        0.3,
        "head start: own each program with a probability of up to this, sampled for each game",
        at_least=0,
        at_most=1,
    )
    given_credits: int | Float[Array, ""] = _given(10, "many credits")
    given_energy: int | Float[Array, ""] = _given(10, "much energy")
    given_siphons: int | Float[Array, ""] = _given(2, "many data siphons")
    given_score: int | Float[Array, ""] = _given(3, "many points for each stage skipped")
    reward_weights: RewardWeights | None = _phased(
        None,
        "factors of reward components in training, as kills=0.5,step_penalty=0, or a YAML file; "
        "none: the original's reward",
    )
    program_bonus: Number = _phased(
        0.0, "reward in training for each program earned; the original has none"
    )
    distance_potential: bool = setting(
        False,
        "in training, a step away from the exit costs what a step toward it earns",
        changeable=True,
    )

    def shaping(self) -> Shaping | None:
        """How the reward differs in training; None if it is the original one."""
        weights = None if self.reward_weights is None else self.reward_weights.as_array()
        if not (self.reward_weights or _is_used(self.program_bonus) or self.distance_potential):
            return None
        return Shaping(weights, jnp.float32(self.program_bonus), self.distance_potential)

    def training_games(self) -> Curriculum | None:
        """The curriculum of training games; None if they are like the original game."""
        head_start = HeadStart(
            share=jnp.float32(self.head_start),
            programs=jnp.float32(self.given_programs),
            credits=jnp.float32(self.given_credits),
            energy=jnp.float32(self.given_energy),
            data_siphons=jnp.float32(self.given_siphons),
            score=jnp.float32(self.given_score),
        )
        stages = None if self.starting_stages is None else self.starting_stages.as_array()
        is_adaptive = _is_used(self.adaptive_starts)
        shaping = self.shaping()
        if stages is None and shaping is None and not (_is_used(self.head_start) or is_adaptive):
            return None
        games = TrainingGames(stages, head_start if _is_used(self.head_start) else None, shaping)
        if not is_adaptive:
            return games
        return AdaptiveStages(games, jnp.float32(self.adaptive_starts))


def _is_used(number: Number) -> bool:
    """Whether a number may differ from 0; an array may, in some phase of the run."""
    return not isinstance(number, (int, float)) or number != 0


def _is_time_aware(env: AbstractEnv[Any]) -> bool:
    return cast(HackMatrix, env).time_aware


def _without_time(env: AbstractEnv[Any], hidden_dim: int) -> int:
    """Returns ``hidden_dim``, after checking that the game is not time-aware."""
    if _is_time_aware(env):
        raise RunError("--time-aware is for the networks mlp and recurrent alone")
    return hidden_dim


CHAMPION = Path(__file__).parent / "champion" / "policy"
"""The best policy trained so far; the files beside it say how it was trained."""

METRICS: dict[str, Metric] = {
    **{
        name: Metric(lambda action, info, name=name: info[name])
        for name in (f"reward/{component}" for component in COMPONENTS)
    },
    "actions/move_frac": Metric(lambda action, info: action < SIPHON_ACTION),
    "actions/siphon_frac": Metric(lambda action, info: action == SIPHON_ACTION),
    "actions/program_frac": Metric(lambda action, info: action >= FIRST_PROGRAM),
    "stats/mean_stage": Metric(lambda action, info: info["stage"], over="episodes"),
    "stats/highest_stage": Metric(lambda action, info: info["stage"], reduce="max"),
    "stats/win_rate": Metric(lambda action, info: info["won"], over="episodes"),
}
"""Per step: means of the 15 reward components, and the share of each kind of action. Per episode:
stages and wins. The highest stage is that of all games, also of those that still run."""

EVALUATE_METRICS: dict[str, Metric] = {
    "stats/mean_score": Metric(lambda action, info: info["score"], over="episodes"),
    **{
        f"stats/ended_in_stage_{stage}": Metric(
            lambda action, info, stage=stage: info["stage"] == stage, over="episodes"
        )
        for stage in range(1, NUM_STAGES + 1)
    },
    **{
        f"actions/{name}_frac": Metric(lambda action, info, number=number: action == number)
        for number, name in enumerate(ACTION_NAMES)
        if number != SIPHON_ACTION
    },
}
"""What ``hackmatrix evaluate`` shows besides: scores, last stages, and the share of each action."""


def play_env(game: GameSettings, model: Model) -> HackMatrix:
    """Makes the original game, with the observations that a policy needs.

    Watching and evaluating have their own limits of steps, in place of ``max_steps``.
    """
    reader = model.reader
    time_aware = isinstance(reader, PlayerCentered) and reader.time_aware
    return HackMatrix(game.undo_depth, time_aware=time_aware)


# Of the run that trained the champion: what a search must know of how its value was learned.
_CHAMPION = "champion"
_CHAMPION_GAMMA = 0.998
_CHAMPION_WEIGHTS = {"step_penalty": 10.0, "victory": 0.2, "siphon_death_penalty": 0.0}
# It was not saved. Estimates from the value's mean error over 256 games were 32 to 35, and 17 from
# the first 200 steps alone.
_CHAMPION_REWARD_SCALE = 33.0


def search_settings(run: TrainedRun[GameSettings], last: RunConfig[GameSettings]) -> dict[str, Any]:
    """What a search must know of a policy: the reward that its value was trained with.

    Args:
        run: the policy.
        last: the settings that its training ended with.
    """
    game, known = last.environment, dict[str, Any]()
    if run.name == _CHAMPION:
        weights = RewardWeights(_CHAMPION_WEIGHTS)
        game = dataclasses.replace(
            game, reward_weights=weights, program_bonus=1.0, distance_potential=True
        )
        known |= {"gamma": _CHAMPION_GAMMA, "reward_scale": _CHAMPION_REWARD_SCALE}
    return known | {"env": dataclasses.replace(cast(HackMatrix, run.env), shaping=game.shaping())}


TASK = Task[GameSettings](
    lambda game: HackMatrix(
        game.undo_depth, game.max_steps, compact=True, time_aware=game.time_aware
    ),
    networks={
        "mlp": lambda env, sizes, key: player_centered_mlp(
            sizes.hidden_dim,
            sizes.num_layers,
            shared_layers=sizes.shared_layers,
            time_aware=_is_time_aware(env),
            key=key,
        ),
        "board": lambda env, sizes, key: board_network(
            _without_time(env, sizes.hidden_dim), sizes.num_layers, key=key
        ),
        "recurrent": lambda env, sizes, key: player_centered_gru(
            sizes.hidden_dim, time_aware=_is_time_aware(env), key=key
        ),
        "flat": lambda env, sizes, key: flat_mlp(
            _without_time(env, sizes.hidden_dim), sizes.num_layers, key=key
        ),
    },
    metrics=METRICS,
    console_columns={"stage": "stats/mean_stage", "highest": "stats/highest_stage"},
    curriculum=GameSettings.training_games,
    presets=Path(__file__).parent / "presets",
    policies={**SCRIPTED, _CHAMPION: CHAMPION},
    play_env=play_env,
    evaluate_metrics=EVALUATE_METRICS,
    search=search_settings,
)
"""The game with compact observations, the networks to choose from, and the metrics."""

# Programs are rare among the actions: a policy with a lower entropy bonus forgets them early.
DEFAULTS = RunConfig(
    environment=GameSettings(),
    algorithm=PPO(ent_coef=0.15),
    logging=LoggingSettings(project="hackmatrix"),
)
"""The default settings of a run."""
