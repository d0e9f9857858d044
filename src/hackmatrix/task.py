"""What a run trains on the game: the game's settings, its networks and what it logs.

``hackmatrix train`` runs it; your own program hands :data:`TASK` and :data:`DEFAULTS`, or
others made of them with ``dataclasses.replace``, to :func:`ppo_mask.runner.main`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hackmatrix.curriculum import starting_stages
from hackmatrix.env import HackMatrix
from hackmatrix.metrics import METRICS
from hackmatrix.networks import BoardActorCritic, PlayerCenteredMLP, flat_mlp, player_centered_gru
from ppo_mask.runner import (
    LoggingSettings,
    Phases,
    RunConfig,
    Task,
    TrainingSettings,
    load_yaml,
    replace,
    setting,
)


@dataclasses.dataclass(frozen=True)
class GameSettings:
    """HackMatrix.

    Attributes:
        undo_depth: positions that UNDO can go back through in a stage.
        max_steps: actions after which a game is cut off; None for no limit.
        curriculum: starting stages and their weights by progress; None for always in stage 1.
    """

    undo_depth: int = setting(8, "positions that UNDO can go back through in a stage")
    max_steps: int | None = setting(None, "actions after which a game is cut off; none: no limit")
    curriculum: Phases | None = setting(
        None,
        "starting stages and their weights by progress, a YAML file; none: stage 1",
        changeable=True,
    )


TASK = Task[GameSettings](
    lambda game: HackMatrix(game.undo_depth, game.max_steps, compact=True),
    networks={
        "mlp": lambda env, sizes, key: PlayerCenteredMLP(
            sizes.hidden_dim, sizes.num_layers, key=key
        ),
        "board": lambda env, sizes, key: BoardActorCritic(
            sizes.hidden_dim, sizes.num_layers, key=key
        ),
        "recurrent": lambda env, sizes, key: player_centered_gru(sizes.hidden_dim, key=key),
        "flat": lambda env, sizes, key: flat_mlp(sizes.hidden_dim, sizes.num_layers, key=key),
    },
    metrics=METRICS,
    console_columns={"stage": "stats/mean_stage", "highest": "stats/highest_stage"},
    curriculum=lambda game: starting_stages(game.curriculum),
)
"""The game on compact observations, the networks to choose from, and what is logged."""

# Programs are rare among the actions; with less entropy the policy forgets them early.
DEFAULTS = RunConfig(
    environment=GameSettings(),
    training=TrainingSettings(ent_coef=0.15),
    logging=LoggingSettings(project="hackmatrix"),
)
"""All settings of a run where nothing else is given."""


def game_settings(config: Path) -> GameSettings:
    """The game's settings in a run's ``config.yaml``.

    A run of another program may have settings of its own; they are left out.

    Raises:
        RunError: the file cannot be read, or a setting has a value that it cannot have.
    """
    stored: Mapping[str, Any] = (load_yaml(config) or {}).get("environment") or {}
    names = {field.name for field in dataclasses.fields(GameSettings)}
    known = {name: value for name, value in stored.items() if name in names}
    return replace(DEFAULTS, known, source=str(config)).environment
